"""A trace made from a series of a running pool's statuses.

A status has the number of requests at that moment, not how many came. Between two snapshots came the increase, and as
many as were answered meanwhile: about requests x seconds / latency, by the service rate that the autoscaler has
measured; without a measured rate these are left out. So a recorded trace is about right while the load lasts for some
snapshots, and misses what came and was answered between two of them. It is open-loop: its requests come at the recorded
times, whatever the simulated fleet does.
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
from rewardpool_control.autoscaler.starts import UNKNOWN_SECONDS
from rewardpool_simulator import trace
from rewardpool_simulator.trace import Arrivals, Duration, FleetSpec, PolicyFigures, RecordedDemand, Trace, TraceError

UNKNOWN_CONCURRENCY: Final = 8
# Both are guesses for a pool without a measured service rate.
UNKNOWN_SERVICE_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class StatusSnapshot:
    """A pool's status at one moment."""

    seconds: float
    """Since the recording began."""
    now: datetime
    status: RewardPoolStatus


@dataclass(frozen=True, kw_only=True)
class _Service:
    concurrency: int
    seconds: float


def has_service_rate(status: RewardPoolStatus) -> bool:
    """Return whether the pool has a measured service rate, without which a trace is a guess."""
    return status.scaling is not None and status.scaling.service_rate is not None


def trace_from(pool: RewardPool, snapshots: Sequence[StatusSnapshot]) -> Trace:
    """Return the trace of a pool's load and demands.

    Args:
        pool: whose spec gives the bounds and the target.
        snapshots: in order; measurements are those of the last one.

    Raises:
        TraceError: the snapshots show no request.
    """
    if not snapshots:
        raise TraceError("no status was recorded")
    service = _service(snapshots[-1].status)
    latency_seconds = service.seconds if has_service_rate(snapshots[-1].status) else math.inf
    arrivals = list(_arrivals(snapshots, latency_seconds=latency_seconds))
    if not arrivals:
        raise TraceError(
            f"no request was seen at {pool.key} in {snapshots[-1].seconds:.0f} s, so there is nothing to replay"
        )
    return Trace(
        description=f"Recorded from {pool.key}, from {snapshots[0].now:%Y-%m-%d %H:%M:%S} UTC on",
        seconds=max(snapshots[-1].seconds, 1.0),
        fleet=FleetSpec(
            max_replicas=_max_replicas(pool, snapshots),
            start_seconds=Duration(seconds=_start_seconds(snapshots[-1].status)),
            service_seconds=Duration(seconds=service.seconds),
            concurrency=service.concurrency,
        ),
        figures=_policy_figures(pool, service),
        arrivals=arrivals,
        demands=list(_demands(snapshots)),
    )


def _service(status: RewardPoolStatus) -> _Service:
    known = status.scaling.service_rate if status.scaling else None
    if known is None:
        return _Service(concurrency=UNKNOWN_CONCURRENCY, seconds=UNKNOWN_SERVICE_SECONDS)
    concurrency = max(1, round(known.samples_in_flight))
    return _Service(concurrency=concurrency, seconds=concurrency / known.samples_per_second)


def _arrivals(snapshots: Sequence[StatusSnapshot], *, latency_seconds: float) -> Iterator[Arrivals]:
    owed = 0.0
    before = 0
    for last, snapshot in pairwise(snapshots):
        if snapshot.status.load is None:
            continue  # no metrics: what came counts when they are back
        there = snapshot.status.load.in_flight + snapshot.status.load.waiting
        apart = snapshot.seconds - last.seconds
        owed += there - before + before * min(1.0, apart / latency_seconds)
        before = there
        came = math.floor(owed)
        if came > 0:
            owed -= came
            yield Arrivals(at_seconds=last.seconds, samples=min(came, trace.MAX_SAMPLES), over_seconds=round(apart, 2))


def _start_seconds(status: RewardPoolStatus) -> float:
    starts = status.scaling.starts if status.scaling else []
    return median(start.seconds for start in starts) if starts else UNKNOWN_SECONDS


def _max_replicas(pool: RewardPool, snapshots: Sequence[StatusSnapshot]) -> int:
    if pool.spec.autoscaling is not None:
        return pool.spec.autoscaling.max_replicas
    return max(1, *(snapshot.status.replicas for snapshot in snapshots))


def _policy_figures(pool: RewardPool, service: _Service) -> PolicyFigures:
    target, drain = service.concurrency, PolicyFigures.model_fields["drain_seconds"].default
    for policy in pool.spec.autoscaling.combined if pool.spec.autoscaling else ():
        target = policy.queue_depth.target_per_replica if policy.queue_depth else target
        drain = policy.demand.drain_seconds if policy.demand else drain
    return PolicyFigures(target_per_replica=target, drain_seconds=drain)


def _demands(snapshots: Sequence[StatusSnapshot]) -> Iterator[RecordedDemand]:
    """Return each job's demands, as often as a trainer renews them."""
    said: dict[str, tuple[float, Demand]] = {}
    for snapshot in snapshots:
        for status in snapshot.status.demands:
            demand = _demand(status, snapshot.now)
            if demand is None:
                continue
            when, before = said.get(demand.job, (-math.inf, None))
            if demand.phase != (before and before.phase) or snapshot.seconds - when >= LEASE_SECONDS / 3:
                said[demand.job] = (snapshot.seconds, demand)
                yield RecordedDemand(at_seconds=snapshot.seconds, demand=demand)


def _demand(status: DemandStatus, now: datetime) -> Demand | None:
    if status.state != "Live" or status.phase not in ("Starting", "Rollout", "Update"):
        return None
    starts_in = None
    if status.next_burst is not None and status.phase != "Rollout":
        starts_in = min(MAX_SECONDS, max(0.0, (status.next_burst - now).total_seconds()))
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
