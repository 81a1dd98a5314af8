"""A trace made from a running pool's status, looked at again and again.

What a status tells is how many requests there are, not how many came. Between two looks came as many as there are more,
and as many as were answered meanwhile: about requests x seconds / latency, by the service rate that the autoscaler has
measured; where it has measured none, these are left out. So a recorded trace is about right while the load lasts for
some looks, and misses what came and went between two of them. It is open: its requests come when they came, whatever a
simulated fleet makes of them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Final

from rewardpool_api import RewardPool, RewardPoolStatus
from rewardpool_api.demand import LEASE_SECONDS, MAX_SAMPLES, MAX_SECONDS, Demand
from rewardpool_api.status import DemandStatus
from rewardpool_operator.autoscaler.starts import UNKNOWN_SECONDS
from rewardpool_operator.times import from_rfc3339
from rewardpool_simulator import trace
from rewardpool_simulator.trace import Arrivals, Duration, FleetSpec, PolicyFigures, RecordedDemand, Trace, TraceError

UNKNOWN_CONCURRENCY: Final = 8
UNKNOWN_SERVICE_SECONDS: Final = 1.0
"""Both are taken for a pool of which no service rate was measured."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A status at one moment."""

    seconds: float
    """Since the recording began."""
    now: datetime
    """Of the same moment, timezone-aware: the status tells of times."""
    status: RewardPoolStatus


@dataclass(frozen=True, kw_only=True)
class _Service:
    concurrency: int
    seconds: float


def has_service_rate(status: RewardPoolStatus) -> bool:
    """Whether it is known what one replica does; a trace without that is a guess."""
    return status.scaling is not None and status.scaling.service_rate is not None


def recorded(pool: RewardPool, looks: Sequence[Look]) -> Trace:
    """The trace that a pool's statuses make.

    Args:
        pool: with its spec.
        looks: in order; the last one's measurements are believed.

    Raises:
        TraceError: no request was seen.
    """
    if not looks:
        raise TraceError("the pool was not looked at")
    service = _service(looks[-1].status)
    latency_seconds = service.seconds if has_service_rate(looks[-1].status) else math.inf
    arrivals = list(_arrivals(looks, latency_seconds=latency_seconds))
    if not arrivals:
        raise TraceError(
            f"no request was seen at {pool.key} in {looks[-1].seconds:.0f} s, so there is nothing to replay"
        )
    return Trace(
        description=f"Recorded from {pool.key}, from {looks[0].now:%Y-%m-%d %H:%M:%S} UTC on",
        seconds=max(looks[-1].seconds, 1.0),
        fleet=FleetSpec(
            max_replicas=_most(pool, looks),
            start_seconds=Duration(seconds=_start_seconds(looks[-1].status)),
            service_seconds=Duration(seconds=service.seconds),
            concurrency=service.concurrency,
        ),
        figures=_figures(pool, service),
        arrivals=arrivals,
        demands=list(_demands(looks)),
    )


def _service(status: RewardPoolStatus) -> _Service:
    known = status.scaling.service_rate if status.scaling else None
    if known is None:
        return _Service(concurrency=UNKNOWN_CONCURRENCY, seconds=UNKNOWN_SERVICE_SECONDS)
    concurrency = max(1, known.in_flight)
    return _Service(concurrency=concurrency, seconds=concurrency / known.per_replica)


def _arrivals(looks: Sequence[Look], *, latency_seconds: float) -> Iterator[Arrivals]:
    owed = 0.0
    before = 0
    for last, look in pairwise(looks):
        if look.status.load is None:
            continue  # nobody knows; what came is seen when figures are there again
        there = look.status.load.in_flight + look.status.load.waiting
        apart = look.seconds - last.seconds
        owed += there - before + before * min(1.0, apart / latency_seconds)
        before = there
        came = math.floor(owed)
        if came > 0:
            owed -= came
            yield Arrivals(at_seconds=last.seconds, samples=min(came, trace.MAX_SAMPLES), over_seconds=round(apart, 2))


def _start_seconds(status: RewardPoolStatus) -> float:
    starts = status.scaling.starts if status.scaling else []
    return median(start.seconds for start in starts) if starts else UNKNOWN_SECONDS


def _most(pool: RewardPool, looks: Sequence[Look]) -> int:
    if pool.spec.autoscaling is not None:
        return pool.spec.autoscaling.max_replicas
    return max(1, *(look.status.replicas for look in looks))


def _figures(pool: RewardPool, service: _Service) -> PolicyFigures:
    target, drain = service.concurrency, PolicyFigures.model_fields["drain_seconds"].default
    for policy in pool.spec.autoscaling.combined if pool.spec.autoscaling else ():
        target = policy.queue_depth.target_per_replica if policy.queue_depth else target
        drain = policy.demand.drain_seconds if policy.demand else drain
    return PolicyFigures(target_per_replica=target, drain_seconds=drain)


def _demands(looks: Sequence[Look]) -> Iterator[RecordedDemand]:
    """What each job said, as often as a job would say it."""
    said: dict[str, tuple[float, Demand]] = {}
    for look in looks:
        for status in look.status.demands:
            demand = _demand(status, look.now)
            if demand is None:
                continue
            when, before = said.get(demand.job, (-math.inf, None))
            if demand.phase != (before and before.phase) or look.seconds - when >= LEASE_SECONDS / 3:
                said[demand.job] = (look.seconds, demand)
                yield RecordedDemand(at_seconds=look.seconds, demand=demand)


def _demand(status: DemandStatus, now: datetime) -> Demand | None:
    if status.state != "Live" or status.phase not in ("Starting", "Rollout", "Update"):
        return None
    starts_in = None
    if status.next_burst is not None and status.phase != "Rollout":
        starts_in = min(MAX_SECONDS, max(0.0, (from_rfc3339(status.next_burst) - now).total_seconds()))
    samples = None if status.samples is None else min(status.samples, MAX_SAMPLES)
    return Demand.model_validate(
        {
            "job": status.job,
            "phase": status.phase,
            "samples": samples,
            "startsInSeconds": starts_in,
            "stalled": status.stalled,
        }
    )
