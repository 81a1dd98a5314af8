"""Rate of one replica: requests or tokens a second, learned from replicas that had enough to do.

A replica with one request at a time answers few, whatever it could. So two things are learned together: the rate, and
how many requests are enough for it. A measurement counts for the rate only if the replica had half as many again as
are enough, or did more than the rate. So a fleet that is larger than needed teaches nothing, instead of teaching that
replicas are slow and growing without end; and one that is too small is full, so that what it shows counts.

The rate is a quantile of the last measurements, by default their median: one long sample moves it little. A
measurement of a replica that had more to do, and did more, shows that those before it were not full: they are dropped.

Once jobs say how many tokens their samples have, all of it is in tokens, and the policies are given the rate for
samples of the length that counts for them (`ServiceRate.of`). With samples of one length that comes to the same as
counting samples; and while no job says a length, samples are taken to be as long as those of the newest measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from statistics import median
from typing import Final

from rewardpool_api.autoscaling import ServiceRateSpec
from rewardpool_api.quantities import MAX_RATE, MIN_RATE
from rewardpool_api.status import BusyRate, ServiceRateStatus
from rewardpool_control.autoscaler.signals import Throughput

MAX_MEASUREMENTS: Final = 16
APART_SECONDS: Final = 5.0
FULL: Final = 1.5  # times what is enough, from where on a replica is taken to be full
ALIKE: Final = 0.9  # share of a rate that is as good as all of it


def learned(
    known: ServiceRateStatus | None,
    seen: Sequence[Throughput],
    *,
    spec: ServiceRateSpec,
    now: datetime,
    tokens: float | None = None,
) -> ServiceRateStatus | None:
    """Return the rate that is known after one more pass; None while none is.

    Args:
        known: after the pass before.
        seen: work of busy replicas, in samples.
        spec: of the pool.
        now: time of the pass.
        tokens: of a sample, in the mean; None where no job says it.
    """
    if known is not None and (now - known.time).total_seconds() < APART_SECONDS:
        return known
    tokens = tokens or (known.tokens_per_sample if known is not None else None)
    if tokens is not None:
        known = known and _in_tokens(known, tokens)
        seen = [replace(one, rate=tokens * one.rate, in_flight=ceil(tokens * one.in_flight)) for one in seen]
    sane = [one for one in seen if MIN_RATE <= one.rate <= MAX_RATE]
    telling = [one for one in sane if known is None or _is_full(one, known)]
    enough = _enough(known, sane)
    if telling:
        newest = BusyRate(
            rate=_rounded(median(one.rate for one in telling)),
            in_flight=round(median(one.in_flight for one in telling)),
        )
        return _with(known, newest, enough=enough, spec=spec, now=now, tokens=tokens)
    if known is None or enough == known.in_flight:
        return known
    return known.model_copy(update={"in_flight": enough, "time": now})


def _in_tokens(known: ServiceRateStatus, tokens: float) -> ServiceRateStatus:
    """Return a rate in samples as one in tokens: they were as long as those of now, as far as is known."""
    if known.tokens_per_sample is not None:
        return known

    def rate(samples: float) -> float:
        return min(MAX_RATE, _rounded(tokens * samples))

    measured = [BusyRate(rate=rate(one.rate), in_flight=ceil(tokens * one.in_flight)) for one in known.measured]
    return known.model_copy(
        update={
            "per_replica": rate(known.per_replica),
            "in_flight": ceil(tokens * known.in_flight),
            "measured": measured,
            "tokens_per_sample": _rounded(tokens),
        }
    )


def _with(
    known: ServiceRateStatus | None,
    newest: BusyRate,
    *,
    enough: int | None,
    spec: ServiceRateSpec,
    now: datetime,
    tokens: float | None,
) -> ServiceRateStatus:
    before = known.measured if known is not None else []
    full = [one for one in before if one.in_flight >= newest.in_flight or one.rate >= ALIKE * newest.rate]
    measured = [*full, newest][-MAX_MEASUREMENTS:]
    rate = _quantile([one.rate for one in measured], spec.quantile)
    if known is None or enough is None or len(full) < len(before):
        # What was enough for a lower rate need not be for this one.
        enough = min(one.in_flight for one in measured if one.rate >= ALIKE * rate)
    return ServiceRateStatus(
        per_replica=rate,
        in_flight=enough,
        tokens_per_sample=None if tokens is None else _rounded(tokens),
        measured=measured,
        time=now,
    )


def _is_full(one: Throughput, known: ServiceRateStatus) -> bool:
    return one.in_flight >= FULL * known.in_flight or one.rate > known.per_replica


def _enough(known: ServiceRateStatus | None, seen: Sequence[Throughput]) -> int | None:
    if known is None:
        return None
    return min([known.in_flight, *(one.in_flight for one in seen if one.rate >= ALIKE * known.per_replica)])


@dataclass(frozen=True, kw_only=True)
class ServiceRate:
    """Rate of a replica, for the policies."""

    per_second: float
    """Tokens that one replica works through in a second, or samples where `tokens` is None."""
    in_flight: int
    """What is enough for it, in the same unit; 0 while only the manifest gives a rate."""
    tokens: float | None = None
    """Tokens of a sample, for which the rest is; None where they do not count."""

    def for_tokens(self, tokens: float) -> "ServiceRate":
        return self if self.tokens is None else replace(self, tokens=tokens)

    @property
    def per_replica(self) -> float:
        """Samples that one replica answers in a second."""
        return self.per_second / (self.tokens or 1.0)

    @property
    def latency_seconds(self) -> float:
        """Seconds of one sample on a replica that has just enough, by Little's law; 0 while only the manifest gives a
        rate. One sample at least is in flight, however short those were that were enough.
        """
        return max(self.in_flight, self.tokens or 1.0) / self.per_second if self.in_flight else 0.0

    @property
    def words(self) -> str:
        if self.tokens is None:
            return f"{self.per_replica:.3g}/s per replica"
        return f"{self.per_second:.3g} tokens/s per replica, {self.tokens:.3g} a sample"

    def within(self, seconds: float) -> float:
        """Requests that one replica answers in so many seconds."""
        # No number of replicas answers faster than one request takes: less would want more replicas for every replica
        # there is, without end.
        return self.per_replica * max(seconds, self.latency_seconds)

    def to_hold(self, requests: int) -> int:
        """Replicas of which each has just enough of so many requests: what it takes if they keep coming like this."""
        return ceil(requests / (self.per_replica * self.latency_seconds)) if self.latency_seconds else 0


def service_rate(
    known: ServiceRateStatus | None, *, spec: ServiceRateSpec, tokens: float | None = None
) -> ServiceRate | None:
    """Return the rate as measured, else the manifest's, else None; `tokens` of None: the last measured sample's."""
    if known is not None:
        rate = ServiceRate(per_second=known.per_replica, in_flight=known.in_flight, tokens=known.tokens_per_sample)
        return rate if tokens is None else rate.for_tokens(tokens)
    if spec.initial_per_replica is not None:
        return ServiceRate(per_second=spec.initial_per_replica, in_flight=0)
    return None


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return _rounded(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def _rounded(rate: float) -> float:
    # Three digits are more than it is good for, and JSON gives them back as they were.
    return float(f"{rate:.3g}")
