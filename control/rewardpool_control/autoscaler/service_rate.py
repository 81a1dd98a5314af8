"""Rate of one replica: requests a second, learned from replicas that had enough to do.

A replica with one request at a time answers few, whatever it could. So two things are learned together: the rate, and
how many requests are enough for it. A measurement counts for the rate only if the replica had half as many again as
are enough, or did more than the rate. So a fleet that is larger than needed teaches nothing, instead of teaching that
replicas are slow and growing without end; and one that is too small is full, so that what it shows counts.

The rate is a quantile of the last measurements, by default their median: one long sample moves it little. A
measurement of a replica that had more to do, and did more, shows that those before it were not full: they are dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from statistics import median
from typing import Final

from rewardpool_api.autoscaling import ServiceRateSpec
from rewardpool_api.quantities import MAX_RATE, MIN_RATE
from rewardpool_api.status import BusyRate, ServiceRateStatus
from rewardpool_control.autoscaler.signals import Throughput

MAX_MEASUREMENTS: Final = 16
"""Measurements in the status."""
APART_SECONDS: Final = 5.0
"""Between two measurements that are kept, so that they cover more than a moment, and are written seldom."""
FULL: Final = 1.5
"""Times what is enough; from there on a replica is taken to be full."""
ALIKE: Final = 0.9
"""Share of a rate that is as good as all of it."""


def learned(
    known: ServiceRateStatus | None, seen: Sequence[Throughput], *, spec: ServiceRateSpec, now: datetime
) -> ServiceRateStatus | None:
    """Return the rate that is known after one more pass; None while none is."""
    if known is not None and (now - known.time).total_seconds() < APART_SECONDS:
        return known
    sane = [one for one in seen if MIN_RATE <= one.rate <= MAX_RATE]
    telling = [one for one in sane if known is None or _is_full(one, known)]
    enough = _enough(known, sane)
    if telling:
        newest = BusyRate(
            rate=_rounded(median(one.rate for one in telling)),
            in_flight=round(median(one.in_flight for one in telling)),
        )
        return _with(known, newest, enough=enough, spec=spec, now=now)
    if known is None or enough == known.in_flight:
        return known
    return known.model_copy(update={"in_flight": enough, "time": now})


def _with(
    known: ServiceRateStatus | None, newest: BusyRate, *, enough: int | None, spec: ServiceRateSpec, now: datetime
) -> ServiceRateStatus:
    before = known.measured if known is not None else []
    full = [one for one in before if one.in_flight >= newest.in_flight or one.rate >= ALIKE * newest.rate]
    measured = [*full, newest][-MAX_MEASUREMENTS:]
    rate = _quantile([one.rate for one in measured], spec.quantile)
    if known is None or enough is None or len(full) < len(before):
        # What was enough for a lower rate need not be for this one.
        enough = min(one.in_flight for one in measured if one.rate >= ALIKE * rate)
    return ServiceRateStatus(per_replica=rate, in_flight=enough, measured=measured, time=now)


def _is_full(one: Throughput, known: ServiceRateStatus) -> bool:
    return one.in_flight >= FULL * known.in_flight or one.rate > known.per_replica


def _enough(known: ServiceRateStatus | None, seen: Sequence[Throughput]) -> int | None:
    if known is None:
        return None
    return min([known.in_flight, *(one.in_flight for one in seen if one.rate >= ALIKE * known.per_replica)])


@dataclass(frozen=True, kw_only=True)
class ServiceRate:
    """Rate of a replica, for the policies."""

    per_replica: float
    """Requests that one replica answers in a second."""
    latency_seconds: float
    """Seconds of one request on a replica that has just enough, by Little's law; 0 while only the manifest gives a
    rate."""

    def within(self, seconds: float) -> float:
        """Requests that one replica answers in so many seconds.

        No number of replicas answers faster than one request takes. Assuming less would want more replicas for
        every replica there is, without end.
        """
        return self.per_replica * max(seconds, self.latency_seconds)

    def to_hold(self, requests: int) -> int:
        """Replicas of which each has just enough of so many requests: what it takes if they keep coming like this."""
        return ceil(requests / (self.per_replica * self.latency_seconds)) if self.latency_seconds else 0


def service_rate(known: ServiceRateStatus | None, *, spec: ServiceRateSpec) -> ServiceRate | None:
    """Return the rate as measured, else the manifest's, else None."""
    if known is not None:
        return ServiceRate(per_replica=known.per_replica, latency_seconds=known.in_flight / known.per_replica)
    if spec.initial_per_replica is not None:
        return ServiceRate(per_replica=spec.initial_per_replica, latency_seconds=0.0)
    return None


def _quantile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest values, as usual."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return _rounded(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def _rounded(rate: float) -> float:
    """Three digits are more than it is good for, and JSON gives them back as they were."""
    return float(f"{rate:.3g}")
