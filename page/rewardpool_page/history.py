"""History of each pool: its size, load, rate and latency over the last hour. No clock, no calls.

The routers count requests and their seconds since they started; a rate is what came between two looks.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rewardpool_page.source import Counts, Seen

SAMPLE_SECONDS: Final = 10.0
"""Between two samples that are kept."""
MAX_SAMPLES: Final = 360
"""Samples of a pool: an hour."""
RATE_SECONDS: Final = 5.0
"""A rate is measured over at least so long."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Answers of the routers over the last seconds."""

    per_second: float
    mean_seconds: float | None
    """From a request to its answer; None where there was none."""
    p95_seconds: float | None
    """95 of 100 requests were answered within so many seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A pool at one moment."""

    at: float
    """Unix time in seconds."""
    desired: int
    ready: int
    in_flight: int | None
    waiting: int | None
    per_second: float | None


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """Part of one pool's history that a view shows."""

    traffic: Traffic | None = None
    samples: tuple[Sample, ...] = ()
    """Oldest first."""


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
        self.samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self.traffic: Traffic | None = None
        self._counts: deque[tuple[float, Counts]] = deque()

    def take(self, seen: Seen, now: float) -> None:
        if seen.counts is None:
            self._counts.clear()
            self.traffic = None
        else:
            self._measure(seen.counts, now if seen.counts.at is None else seen.counts.at)
        if not self.samples or now - self.samples[-1].at >= SAMPLE_SECONDS:
            status = seen.pool.status
            self.samples.append(
                Sample(
                    at=now,
                    desired=status.scaling.desired if status.scaling else status.replicas,
                    ready=status.ready_replicas,
                    in_flight=status.load.in_flight if status.load else None,
                    waiting=status.load.waiting if status.load else None,
                    per_second=self.traffic.per_second if self.traffic else None,
                )
            )

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

    def take(self, pools: Iterable[Seen], *, now: float) -> None:
        """Remember a look, at this Unix time in seconds."""
        by_key = {seen.pool.key: seen for seen in pools}
        self._pools = {key: self._pools.get(key) or _PoolHistory() for key in by_key}
        for key, seen in by_key.items():
            self._pools[key].take(seen, now)

    def of(self, pool: str) -> Remembered:
        """Return the history of the pool `namespace/name`."""
        known = self._pools.get(pool)
        return Remembered(traffic=known.traffic, samples=tuple(known.samples)) if known else Remembered()
