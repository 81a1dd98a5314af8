"""A whole file from its rows to its scores: checked, scored in a window, kept in the journal, written in order."""

import functools
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rewardpool._files.journal import Journal, input_of
from rewardpool._files.progress import RateMeter, Show, silent
from rewardpool._files.results import fault_of, outcomes_of, record_of, write_output
from rewardpool._files.source import Checked, RowSource, is_parquet, pyarrow_parquet
from rewardpool._files.window import WINDOW, Done, Window
from rewardpool._rewards.blocking import BlockingReward
from rewardpool._rewards.config import RewardSpec
from rewardpool._rewards.ledger.writer import LedgerReport
from rewardpool._rewards.part_config import Part, PoolPart
from rewardpool.errors import ConfigError
from rewardpool_api import names

# Fields of `RewardConfig` on which a score depends; the others say how it is requested.
_CLIENT_SAYS_WHAT: Final = {"pool", "url", "served_name", "adapter"}


@dataclass(frozen=True, kw_only=True)
class FileReport:
    """Result of scoring a file.

    Attributes:
        rows: That it has.
        before: Of them, those that earlier runs scored.
        scored: Rows that have a score, each of their answers.
        unscored: Rows that have none, by the fault.
        revisions: By the name of each pool, how many answers each revision of its workers scored.
        seconds: That this run took, the reading of the file left out.
        rate: Rows a second of this run.
        out: The file with the scores.
        ledger: What became of the ledger; None where the reward has none.
    """

    rows: int
    before: int
    scored: int
    unscored: Mapping[str, int] = field(default_factory=dict)
    revisions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: float
    rate: float
    out: Path
    ledger: LedgerReport | None = None

    @property
    def is_complete(self) -> bool:
        """True if every row has a score."""
        return self.scored == self.rows


def score_file(
    open_reward: Callable[[], BlockingReward],
    source: RowSource,
    out: Path,
    *,
    about: Mapping[str, Any],
    window: int = WINDOW,
    show: Show = silent,
    each: Callable[[Mapping[str, Any]], None] = lambda record: None,
) -> FileReport:
    """Score the rows of a file that are not scored yet, and write the scores of all of them.

    Args:
        open_reward: Gives the open reward; called once the file has been checked.
        out: Where the scores go, JSON lines or Parquet by its name; they are in `journal_of` it until it is complete.
        about: What scores, in words by their keys; an output that another one began is refused.
        window: Most rows in flight.
        show: Receives how far it is.
        each: Receives every row's record in the end, in the order of the file.

    Raises:
        ConfigError: The file, the output or the reward cannot be used as they are; nothing was asked.
        PoolError: A pool cannot be used; what is scored is kept, and the same call goes on there.
        OSError: A file cannot be read or written.
    """
    journal_path = journal_of(out)
    _check_output(out, journal_path)
    source.go_on(input_of(journal_path))
    reading = RateMeter("read")
    checked = source.check(lambda rows: None if rows % 1024 else show(reading.progress(rows)))
    read = {"sha256": checked.sha256, "rows": checked.rows, "form": checked.form.name, **source.extent()}
    with Journal(journal_path, about={"input": read, "reward": dict(about)}, rows=checked.rows) as journal:
        before = journal.done
        if out.exists() and before < checked.rows:
            raise ConfigError("--out", f"{out} exists already; name another, or delete it")
        began = time.monotonic()
        ledger = None
        if before < checked.rows:
            with _unless_empty(journal):
                opened = open_reward()
                _score(opened, source, checked, journal, window=window, show=show)
                opened.flush_ledger()
                ledger = opened.ledger
        seconds = time.monotonic() - began
        if journal.done < checked.rows or (before < checked.rows and source.digest() != checked.sha256):
            raise ConfigError(
                source.origin,
                f"was changed while it was scored, so that scores may be those of other rows; delete {journal.path} to"
                " begin anew",
            )
        counts = _Counts(each)
        write_output(out, map(counts.count, journal.in_order()))
        journal.delete()
    return FileReport(
        rows=checked.rows,
        before=before,
        scored=checked.rows - counts.unscored.total(),
        unscored=dict(sorted(counts.unscored.items())),
        revisions={pool: dict(seen.most_common()) for pool, seen in sorted(counts.revisions.items())},
        seconds=seconds,
        rate=(checked.rows - before) / seconds if seconds > 0 else 0.0,
        out=out,
        ledger=ledger,
    )


def journal_of(out: Path) -> Path:
    """Return where the scores are until they are complete."""
    return out.with_name(f"{out.name}.journal")


def identity_of(spec: RewardSpec) -> dict[str, str]:
    """Return what scores, in words and without secrets: the same for rewards that give the same scores."""
    settings = [_settings(part) for part in spec.parts]
    mixing = spec.model_dump(mode="python", include={"combine", "post_process"})
    canonical = json.dumps([settings, mixing], sort_keys=True, default=_name)
    return {
        "by": ", ".join(part.scorer for part in spec.parts),
        "settings": hashlib.sha256(canonical.encode()).hexdigest()[:12],
    }


def _settings(part: Part) -> dict[str, Any]:
    dumped = part.model_dump(mode="python", exclude={"client"})
    if isinstance(part, PoolPart):
        dumped["client"] = part.client.model_dump(mode="python", include=_CLIENT_SAYS_WHAT)
        if part.client.pool is None and part.client.url is None:
            dumped["client"]["by_environment"] = [os.environ.get(name) for name in (names.ENV_POOL, names.ENV_URL)]
    return dumped


def _name(value: Any) -> Any:
    """Return a stand-in for a value that JSON lacks, the same in every process: a function's name, a path's text."""
    if isinstance(value, functools.partial):
        return [_name(value.func), value.args, value.keywords]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"
    kind = type(value)
    # Without a text of its own, or where it is called, its type: the address in its text differs each time.
    has_text = not callable(value) and str(value) != object.__repr__(value)
    return str(value) if has_text else f"{kind.__module__}:{kind.__qualname__}"


def _check_output(out: Path, journal: Path) -> None:
    if is_parquet(out, field="--out"):
        pyarrow_parquet("--out")
    if not out.parent.is_dir():
        raise ConfigError("--out", f"there is no folder {out.parent}; make it, or name a file in another one")
    if out.exists() and not journal.exists():
        raise ConfigError("--out", f"{out} exists already; name another, or delete it")


@contextmanager
def _unless_empty(journal: Journal) -> Iterator[None]:
    """Within this block an error leaves a journal only where there is something in it."""
    try:
        yield
    except BaseException:
        if not journal.done:
            journal.delete()
        raise


def _score(
    opened: BlockingReward, source: RowSource, checked: Checked, journal: Journal, *, window: int, show: Show
) -> None:
    if opened.needs_group and not checked.form.is_pair:
        raise ConfigError(
            "reward",
            "compares the responses to a prompt, and each row of this file has one; call the reward with whole batches,"
            " or give pairs",
        )
    pace = RateMeter("scored", before=journal.done, total=checked.rows)
    unscored = 0

    def write(done: list[Done]) -> None:
        nonlocal unscored
        records = [record_of(row, outcomes) for row, outcomes in done]
        journal.add(records)
        unscored += sum(fault_of(record) is not None for record in records)

    rows = source.rows(checked, lambda number: not journal.is_done(number))
    Window(opened, rows=window).run(rows, write, tick=lambda: show(pace.progress(journal.done, unscored=unscored)))


class _Counts:
    def __init__(self, each: Callable[[Mapping[str, Any]], None]) -> None:
        self._each = each
        self.unscored: Counter[str] = Counter()
        self.revisions: dict[str, Counter[str]] = {}

    def count(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        if (fault := fault_of(record)) is not None:
            self.unscored[fault] += 1
        for answer in outcomes_of(record):
            for pool, seen in answer.get("revisions", {}).items():
                self.revisions.setdefault(pool, Counter()).update(seen)
        self._each(record)
        return record
