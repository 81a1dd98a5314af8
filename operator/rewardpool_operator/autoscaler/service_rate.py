"""What one replica does: requests a second, learned from replicas that had enough to do.

A replica with one request at a time answers few, whatever it could. So a measurement says something about capacity only
if the replica had about as many requests as those had from which the rate is known, or did more than that rate. Hence
a fleet that is larger than needed teaches nothing, instead of teaching that replicas are slow and growing without end;
and one that is too small is full, so that what it shows counts.

The rate is a quantile of the last measurements, by default their median: one long sample moves it little.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from statistics import median
from typing import Final

from rewardpool_api.autoscaling import ServiceRateSpec
from rewardpool_api.status import BusyRate, ServiceRateStatus
from rewardpool_operator.autoscaler.signals import Throughput
from rewardpool_operator.times import from_rfc3339, rfc3339

KEPT: Final = 16
"""Measurements in the status."""
APART_SECONDS: Final = 5.0
"""Between two measurements that are kept, so that they tell of more than a moment, and are written seldom."""
AS_BUSY: Final = 0.75
"""Share of the usual requests in flight from which on a replica counts as busy."""


def learned(
    known: ServiceRateStatus | None, seen: Sequence[Throughput], *, spec: ServiceRateSpec, now: datetime
) -> ServiceRateStatus | None:
    """What is known after one more look; None while nothing is."""
    if known is not None and (now - from_rfc3339(known.time)).total_seconds() < APART_SECONDS:
        return known
    telling = [one for one in seen if isfinite(one.rate) and one.rate > 0 and _tells(one, known)]
    if not telling:
        return known
    newest = BusyRate(
        rate=_rounded(median(one.rate for one in telling)),
        in_flight=round(median(one.in_flight for one in telling)),
    )
    measured = [*(known.measured if known else []), newest][-KEPT:]
    rate = _quantile([one.rate for one in measured], spec.quantile)
    return ServiceRateStatus(per_replica=rate, measured=measured, time=rfc3339(now))


@dataclass(frozen=True, kw_only=True)
class ServiceRate:
    """What the policies reckon with."""

    per_replica: float
    """Requests that one replica answers in a second."""
    latency_seconds: float
    """What one request takes on a busy replica, by Little's law; 0 while only the manifest says anything."""

    def within(self, seconds: float) -> float:
        """Requests that one replica answers in so many seconds.

        No number of replicas answers faster than one request takes. Reckoning with less would ask for more replicas for
        every replica there is, without end.
        """
        return self.per_replica * max(seconds, self.latency_seconds)


def service_rate(known: ServiceRateStatus | None, *, spec: ServiceRateSpec) -> ServiceRate | None:
    """As measured, as the manifest says, or None."""
    if known is not None:
        usual = median(one.in_flight for one in known.measured)
        return ServiceRate(per_replica=known.per_replica, latency_seconds=usual / known.per_replica)
    if spec.initial_per_replica is not None:
        return ServiceRate(per_replica=spec.initial_per_replica, latency_seconds=0.0)
    return None


def _tells(one: Throughput, known: ServiceRateStatus | None) -> bool:
    if known is None or not known.measured:
        return True
    usual = median(before.in_flight for before in known.measured)
    return one.in_flight >= AS_BUSY * usual or one.rate > known.per_replica


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
