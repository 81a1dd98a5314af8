"""Scores of a pool's jobs over time: what each got between two marks of its totals. No clock, no calls.

A job announces totals since it opened the pool, so a look that was missed loses nothing, and a part of the time with no
score has no mean.
"""

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from rewardpool_api.contract import FAULTS
from rewardpool_api.job_scores import JobScores
from rewardpool_api.status import DemandStatus

MARK_SECONDS: Final = 900.0
MAX_MARKS: Final = 672  # a week
MAX_RECENT: Final = 360  # the last hour, one a look
MAX_JOBS: Final = 8  # one more takes the place of one that has ended, or has none


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreInterval:
    """Scores of one job within a part of the time."""

    at: float
    """Unix time in seconds of its end."""
    mean: float | None
    """None where no sample was scored."""
    standard_deviation: float | None
    failures: tuple[int, ...]
    """Samples without a score, in the order of FAULTS."""
    retries: int


class _Mark(NamedTuple):
    at: float
    mean: float
    deviation: float
    counts: tuple[int, ...]
    """Scores, retries, and failures by fault."""


_NOTHING: Final = _Mark(0.0, 0.0, 0.0, (0,) * (2 + len(FAULTS)))


def _between(before: _Mark, after: _Mark) -> ScoreInterval:
    """Return what came between two marks; all of the later one where the job began to count anew."""
    if any(late < early for early, late in zip(before.counts, after.counts, strict=True)):
        before = _NOTHING
    scored, retries, *failures = (late - early for early, late in zip(before.counts, after.counts, strict=True))
    mean, deviation = _figures(before, after) if scored else (math.nan, math.nan)
    has_figures = math.isfinite(mean + deviation)
    return ScoreInterval(
        at=after.at,
        mean=mean if has_figures else None,
        standard_deviation=deviation if has_figures else None,
        failures=tuple(failures),
        retries=retries,
    )


def _figures(before: _Mark, after: _Mark) -> tuple[float, float]:
    """Return mean and standard deviation of the scores between two marks; not finite where a job announces nonsense."""
    earlier, total = before.counts[0], after.counts[0]
    mean = (total * after.mean - earlier * before.mean) / (total - earlier)
    off = mean - before.mean
    # A power of a large float would raise.
    squares = total * after.deviation * after.deviation - earlier * before.deviation * before.deviation
    variance = (squares - off * off * earlier * (total - earlier) / total) / (total - earlier)
    return mean, math.sqrt(variance) if variance > 0 else 0.0


def _counts(scores: JobScores) -> tuple[int, ...]:
    """Return the totals that a run of a job never lowers: scores, retries, and failures by fault."""
    return scores.count, scores.retries, *(getattr(scores.failures, fault) for fault in FAULTS)


class _Marks:
    """Totals of one job, packed: 52 bytes each, where an object takes 400."""

    _PACKED: Final = struct.Struct(f"<3dQ{1 + len(FAULTS)}I")

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._all = bytearray()
        self._next = -math.inf

    def add(self, at: float, packed: bytes, *, is_last: bool = False) -> None:
        """Keep what differs from the latest mark, once that is old enough, or nothing follows."""
        size = self._PACKED.size
        if (at >= self._next or is_last) and self._all[8 - size :] != packed:
            self._all += struct.pack("<d", at) + packed
            del self._all[: -self._most * size]
            self._next = at + self._seconds

    def since(self, begin: float) -> Iterator[ScoreInterval]:
        """Return what came from this Unix time on, without the parts in which nothing did."""
        unpacked = self._PACKED.iter_unpack(self._all)
        marks = (_Mark(at, mean, deviation, tuple(counts)) for at, mean, deviation, *counts in unpacked)
        parts = (_between(before, after) for before, after in pairwise(marks) if after.at >= begin)
        return (part for part in parts if part.mean is not None or any(part.failures) or part.retries)

    @classmethod
    def packed(cls, scores: JobScores) -> bytes:
        figures = (scores.mean, scores.standard_deviation) if scores.count else (0.0, 0.0)
        values = (math.nan if figure is None else figure for figure in figures)
        scored, *counts = _counts(scores)
        return cls._PACKED.pack(0.0, *values, scored, *(min(count, 2**32 - 1) for count in counts))[8:]


class _Job:
    def __init__(self) -> None:
        self.recent = _Marks(0.0, MAX_RECENT)
        self.marks = _Marks(MARK_SECONDS, MAX_MARKS)
        self.scored_at = 0.0
        self._latest = b""
        self._counts = (0,) * (2 + len(FAULTS))

    def record(self, scores: JobScores, at: float) -> None:
        packed, counts = _Marks.packed(scores), _counts(scores)
        counts_anew = any(now < before for now, before in zip(counts, self._counts, strict=True))
        if counts_anew:
            self.end()  # its last totals: those that follow are of another run of the job
        if packed != self._latest:
            self._latest, self._counts, self.scored_at = packed, counts, at
        self.recent.add(at, packed)
        self.marks.add(at, packed, is_last=counts_anew)

    def end(self) -> None:
        """It announces nothing now: keep its last totals, which no others follow soon."""
        self.marks.add(self.scored_at, self._latest, is_last=True)


class ScoreHistory:
    """Those of all jobs of a pool."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}

    def record(self, demands: Iterable[DemandStatus], *, at: float) -> None:
        """Remember the totals at this Unix time in seconds."""
        demands = list(demands)
        live = {one.job: one.scores or JobScores() for one in demands if one.state == "Live"}
        last = {one.job: one.scores for one in demands if one.state != "Live"}
        ended = {name: job for name, job in self._jobs.items() if name not in live}
        for name, job in ended.items():
            if (totals := last.get(name)) is not None:
                job.record(totals, at)
            job.end()
        for name, totals in live.items():
            if name not in self._jobs and len(self._jobs) >= MAX_JOBS:
                if not ended:
                    continue
                oldest = min(ended, key=lambda name: ended[name].scored_at)
                del self._jobs[oldest], ended[oldest]
            self._jobs.setdefault(name, _Job()).record(totals, at)

    def since(self, begin: float, *, is_recent: bool) -> dict[str, tuple[ScoreInterval, ...]]:
        """Return, by job, what came from this Unix time on, oldest first; a job of which nothing did is left out.

        Args:
            is_recent: in parts of a look instead of `MARK_SECONDS`, of the last hour alone.
        """
        jobs = sorted(self._jobs.items())
        kept = {name: tuple((job.recent if is_recent else job.marks).since(begin)) for name, job in jobs}
        return {name: parts for name, parts in kept.items() if parts}
