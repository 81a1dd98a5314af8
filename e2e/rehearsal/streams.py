"""What became of a job's samples while something changed: a row of the report for each change."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from faults.tally import Tally, TrafficLog, count


@dataclass(frozen=True, kw_only=True)
class Row:
    """A change, and what it did to the samples of one job and to the workers."""

    where: str
    change: str
    client: str
    """Version of the job's."""
    server: str
    """Version of what changed, after the change."""
    seconds: float
    tally: Tally
    workers: int
    """There were before the change."""
    replaced: int
    """Of these, by others."""
    asked: bool
    """Whether somebody asked for all of them to be replaced."""

    @property
    def passed(self) -> bool:
        """Whether nothing was lost or wrong, and exactly what was asked for was replaced."""
        kept = self.replaced == (self.workers if self.asked else 0)
        return self.tally.samples > 0 and self.tally.failed == self.tally.wrong == 0 and kept

    def report(self) -> dict[str, Any]:
        """As it is written to the report."""
        numbers = asdict(replace(self.tally, slowest_seconds=round(self.tally.slowest_seconds, 2)))
        numbers["lost"] = numbers.pop("failed")
        said = {name: getattr(self, name) for name in ("where", "change", "client", "server")}
        kept = {"workers": self.workers, "replaced": self.replaced, "asked": self.asked, "passed": self.passed}
        return {**said, "seconds": round(self.seconds, 1), **numbers, **kept}


@dataclass(frozen=True)
class Change:
    """A window of time with a change in it. What is seen until the next one begins is counted as this one's, too."""

    name: str
    server: str
    asked: bool
    since: float
    until: float
    before: frozenset[str]
    after: frozenset[str]


@dataclass
class Changes:
    """The changes of one pool, one after the other, as its jobs stream."""

    where: str
    found: list[Change] = field(default_factory=list)

    @contextmanager
    def during(
        self, name: str, *, server: str, workers: Callable[[], frozenset[str]], asked: bool = False
    ) -> Iterator[None]:
        """The window in which the context is open; `workers` names those that there are, by what no other has."""
        since, before = time.time(), workers()
        yield
        self.found.append(Change(name, server, asked, since, time.time(), before, workers()))

    def rows(self, client: str, log: TrafficLog) -> list[Row]:
        """A row for each change, of one job that streams no more."""
        ends = [(following.since, following.before) for following in self.found[1:]]
        ends.append((self.found[-1].until, self.found[-1].after))
        return [
            Row(
                where=self.where,
                change=change.name,
                client=client,
                server=change.server,
                seconds=change.until - change.since,
                tally=count(log.due(change.since, end), log.answers()),
                workers=len(change.before),
                replaced=len(change.before - after),
                asked=change.asked,
            )
            for change, (end, after) in zip(self.found, ends, strict=True)
        ]


def lines(rows: Sequence[Row]) -> str:
    """The rows as a table for people."""
    return "\n".join(_line(row) for row in rows)


def _line(row: Row) -> str:
    tally, change = row.tally, f"{row.server}: {row.change}"
    counts = f"{tally.samples:5} samples, {tally.failed} lost, {tally.wrong} wrong"
    replaced = f"{row.replaced} of {row.workers} workers replaced{' as asked' if row.asked else ''}"
    verdict = "" if row.passed else f"  FAILED {'; '.join(tally.problems)}"
    return f"  {row.where:<11} {change:<44} job of {row.client}: {counts}; {replaced}{verdict}"
