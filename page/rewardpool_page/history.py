"""History of each pool: its size, load, rate and latency over an hour, and means over a week. No clock, no calls.

The routers count requests and their seconds since they started; a rate is what came between two looks.
"""

import math
import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rewardpool_page.score_history import ScoreHistory
from rewardpool_page.source import Counts, Seen

SAMPLE_SECONDS: Final = 10.0
MAX_SAMPLES: Final = 360  # an hour
MEAN_SECONDS: Final = 300.0
MAX_MEANS: Final = 2016  # a week
RATE_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Answers of the routers over the last seconds."""

    per_second: float
    mean_seconds: float | None
    """From a request to its answer; None where there was none."""
    p95_seconds: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPoint:
    """A pool at one moment."""

    at: float
    """Unix time in seconds."""
    desired: int
    ready: int
    in_flight: int | None
    waiting: int | None
    per_second: float | None
    mean_seconds: float | None
    p95_seconds: float | None


def mean_of(samples: Sequence[HistoryPoint]) -> HistoryPoint:
    """Return one for all of them: the latest sizes, the mean load and rate, and the slowest 95 of 100."""
    rated = [(one.per_second, one.mean_seconds) for one in samples if one.per_second and one.mean_seconds is not None]
    # The mean latency is that of all requests, so busier samples count for more.
    answered = sum(rate for rate, _ in rated)
    in_flight, waiting = _mean([one.in_flight for one in samples]), _mean([one.waiting for one in samples])
    return HistoryPoint(
        at=samples[-1].at,
        desired=samples[-1].desired,
        ready=samples[-1].ready,
        in_flight=None if in_flight is None else round(in_flight),
        waiting=None if waiting is None else round(waiting),
        per_second=_mean([one.per_second for one in samples]),
        mean_seconds=sum(rate * seconds for rate, seconds in rated) / answered if answered else None,
        p95_seconds=max((one.p95_seconds for one in samples if one.p95_seconds is not None), default=None),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


class Means:
    """Samples of a week, packed: 36 bytes each, where an object takes 300."""

    _PACKED: Final = struct.Struct("<d7f")

    def __init__(self) -> None:
        self._all = bytearray()

    def add(self, sample: HistoryPoint) -> None:
        """Keep it, and forget the oldest of too many."""
        values = (
            sample.desired,
            sample.ready,
            sample.in_flight,
            sample.waiting,
            sample.per_second,
            sample.mean_seconds,
            sample.p95_seconds,
        )
        self._all += self._PACKED.pack(sample.at, *(math.nan if value is None else value for value in values))
        del self._all[: -MAX_MEANS * self._PACKED.size]

    def since(self, begin: float) -> tuple[HistoryPoint, ...]:
        """Return those from this Unix time on, oldest first."""
        return tuple(self._sample(*values) for values in self._PACKED.iter_unpack(self._all) if values[0] >= begin)

    @staticmethod
    def _sample(at: float, desired: float, ready: float, *others: float) -> HistoryPoint:
        in_flight, waiting, rate, mean, p95 = (None if math.isnan(value) else value for value in others)
        return HistoryPoint(
            at=at,
            desired=int(desired),
            ready=int(ready),
            in_flight=None if in_flight is None else int(in_flight),
            waiting=None if waiting is None else int(waiting),
            per_second=rate,
            mean_seconds=mean,
            p95_seconds=p95,
        )


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """Part of one pool's history that a view shows."""

    traffic: Traffic | None = None
    samples: tuple[HistoryPoint, ...] = ()
    means: Means = field(default_factory=Means)
    scores: ScoreHistory = field(default_factory=ScoreHistory)


def traffic_between(before: Counts, after: Counts, seconds: float) -> Traffic | None:
    """The rate and latency between two looks; None when a router began to count anew."""
    answered = after.answered - before.answered
    if answered < 0 or seconds <= 0:
        return None
    if answered == 0:
        return Traffic(per_second=0.0, mean_seconds=None, p95_seconds=None)
    within = {bound: count - before.within.get(bound, 0) for bound, count in after.within.items()}
    mean = max(0.0, after.seconds - before.seconds) / answered
    return Traffic(per_second=answered / seconds, mean_seconds=mean, p95_seconds=quantile(0.95, within))


def quantile(share: float, within: dict[float, int]) -> float | None:
    """The time within which this share was answered, between two bounds by a straight line, as PromQL does it.

    None where more than that took longer than the last bound, or nothing is known.
    """
    bounds = sorted(bound for bound in within if bound != float("inf"))
    total = max(within.values(), default=0)
    place = bisect_left([within[bound] for bound in bounds], share * total)
    if total <= 0 or place == len(bounds):
        return None
    low, below = (bounds[place - 1], within[bounds[place - 1]]) if place else (0.0, 0)
    here = within[bounds[place]] - below
    return low + (bounds[place] - low) * (share * total - below) / here if here > 0 else bounds[place]


class _PoolHistory:
    def __init__(self) -> None:
        self.samples: deque[HistoryPoint] = deque(maxlen=MAX_SAMPLES)
        self.traffic: Traffic | None = None
        self.means = Means()
        self.scores = ScoreHistory()
        self._meant_at = float("-inf")
        self._counts: deque[tuple[float, Counts]] = deque()

    def record(self, seen: Seen, now: float, *, counted: bool) -> None:
        if not counted:
            pass
        elif seen.counts is None:
            self._counts.clear()
            self.traffic = None
        else:
            self._measure(seen.counts, now if seen.counts.at is None else seen.counts.at)
        if not self.samples or now - self.samples[-1].at >= SAMPLE_SECONDS:
            status, traffic = seen.pool.status, self.traffic if counted else None
            self.samples.append(
                HistoryPoint(
                    at=now,
                    desired=status.scaling.desired if status.scaling else status.replicas,
                    ready=status.ready_replicas,
                    in_flight=status.load.in_flight if status.load else None,
                    waiting=status.load.waiting if status.load else None,
                    per_second=traffic.per_second if traffic else None,
                    mean_seconds=traffic.mean_seconds if traffic else None,
                    p95_seconds=traffic.p95_seconds if traffic else None,
                )
            )
            self.scores.record(status.demands, at=now)
            if now - self._meant_at >= MEAN_SECONDS:
                self.means.add(mean_of([one for one in self.samples if one.at > self._meant_at]))
                self._meant_at = now

    def _measure(self, counts: Counts, now: float) -> None:
        if self._counts and self._counts[-1][0] >= now:
            return  # an answer that was measured already
        self._counts.append((now, counts))
        # The newest look that is old enough stays first.
        while len(self._counts) > 1 and now - self._counts[1][0] >= RATE_SECONDS:
            self._counts.popleft()
        began, before = self._counts[0]
        if now > began:
            self.traffic = traffic_between(before, counts, now - began)
            if self.traffic is None:
                self._counts = deque([(now, counts)])


class History:
    """Those of all pools; one that is gone is forgotten."""

    def __init__(self) -> None:
        self._pools: dict[str, _PoolHistory] = {}

    def record(self, pools: Iterable[Seen], *, now: float, counted: bool = True) -> None:
        """Remember a look.

        Args:
            now: Unix time in seconds.
            counted: whether routers were asked for their counts; where not, the former ones still count.
        """
        by_key = {seen.pool.key: seen for seen in pools}
        self._pools = {key: self._pools.get(key) or _PoolHistory() for key in by_key}
        for key, seen in by_key.items():
            self._pools[key].record(seen, now, counted=counted)

    def get(self, pool: str) -> Remembered:
        known = self._pools.get(pool)
        if known is None:
            return Remembered()
        return Remembered(traffic=known.traffic, samples=tuple(known.samples), means=known.means, scores=known.scores)
