"""What Prometheus scrapes of each pool: its metrics as of its last pass, made into series at each scrape.

So no series can outlive what it is about: a revision, a limit, a pool.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rewardpool_api import RewardPool, RewardPoolStatus
from rewardpool_api.status import DemandStatus

POOL_LABELS: Final = ("namespace", "pool")
_DEMANDS: Final = ("Live", "Lapsed", "Ignored")
"""States of a demand that are worth a look; an ended one is history."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolMetrics:
    """What is exposed of one pool, and no more of it than that: a thousand pools are kept."""

    engine: str
    model_type: str
    revision: str
    replicas: tuple[tuple[str, int], ...]
    """State -> workers."""
    conditions: tuple[tuple[str, bool], ...]
    """Type -> whether its status is True."""
    requests: tuple[tuple[str, int], ...]
    """State -> requests; empty while the routers' metrics are missing, since unknown is not zero."""
    limit: str | None
    """What keeps the desired replicas from being what the policies recommend."""
    demands: tuple[tuple[str, int], ...]
    """State -> training jobs; empty for a pool that does not scale."""
    service_rate: float | None
    """Requests that one busy replica answers in a second; None until that was measured."""
    start_seconds: float | None
    """The longest of the last starts; None where none was seen."""
    first_score: tuple[tuple[str, float], ...]
    """Part -> seconds of the last first score; empty until there was one."""


def metrics_of(pool: RewardPool, status: RewardPoolStatus) -> PoolMetrics:
    """The metrics of a pool with this status."""
    load, scaling = status.load, status.scaling
    return PoolMetrics(
        engine=pool.spec.engine.name,
        model_type=pool.spec.model.type,
        revision=status.current_revision,
        replicas=_replicas(status),
        conditions=tuple((condition.type, condition.status == "True") for condition in status.conditions),
        requests=(("in_flight", load.in_flight), ("waiting", load.waiting)) if load else (),
        limit=scaling.limit if scaling else None,
        demands=_demands(status.demands) if pool.spec.autoscaling is not None else (),
        service_rate=scaling.service_rate.per_replica if scaling and scaling.service_rate else None,
        start_seconds=max((start.seconds for start in scaling.starts), default=None) if scaling else None,
        first_score=_first_score(status),
    )


def _replicas(status: RewardPoolStatus) -> tuple[tuple[str, int], ...]:
    scaling = status.scaling
    recommended = (
        (("recommended", scaling.recommended_replicas),)
        if scaling is not None and scaling.recommended_replicas is not None
        else ()
    )
    return (
        ("desired", scaling.desired if scaling else status.replicas),
        ("ready", status.ready_replicas),
        ("starting", max(0, status.replicas - status.ready_replicas)),
        ("draining", status.draining_replicas),
        ("parked", status.parked_replicas),
        *recommended,
    )


def _first_score(status: RewardPoolStatus) -> tuple[tuple[str, float], ...]:
    first = status.first_score
    return tuple(first.parts) if first is not None and first.waits_for is None else ()


def _demands(demands: Sequence[DemandStatus]) -> tuple[tuple[str, int], ...]:
    states = [demand.state for demand in demands]
    stalled = sum(demand.stalled for demand in demands if demand.state == "Live")
    return (*((state.lower(), states.count(state)) for state in _DEMANDS), ("stalled", stalled))


class PoolCollector(Collector):
    """The gauges of all pools, made anew at each scrape."""

    def __init__(self) -> None:
        self.pools: dict[tuple[str, str], PoolMetrics] = {}
        """Namespace and name -> metrics."""
        self.failing: dict[tuple[str, str], Sequence[tuple[str, str, float]]] = {}
        """Namespace and name -> steps that fail, why, and the Unix time since when."""

    def describe(self) -> Iterable[Metric]:
        """What the registry checks names by."""
        return self.families()

    def collect(self) -> Iterable[Metric]:
        """The families with a series for every pool."""
        families = self.families()
        info, replicas, conditions, requests, limits, demands, rates, starts, first_scores, failing = families
        for (namespace, name), steps in list(self.failing.items()):
            for step, reason, since in steps:
                failing.add_metric([namespace, name, step, reason], since)
        # A copy: scrapes are answered by a thread of their own.
        for (namespace, name), pool in list(self.pools.items()):
            key = [namespace, name]
            info.add_metric([*key, pool.engine, pool.model_type, pool.revision], 1)
            for state, workers in pool.replicas:
                replicas.add_metric([*key, state], workers)
            for kind, holds in pool.conditions:
                conditions.add_metric([*key, kind], holds)
            for state, count in pool.requests:
                requests.add_metric([*key, state], count)
            if pool.limit is not None:
                limits.add_metric([*key, pool.limit], 1)
            for state, jobs in pool.demands:
                demands.add_metric([*key, state], jobs)
            if pool.service_rate is not None:
                rates.add_metric(key, pool.service_rate)
            if pool.start_seconds is not None:
                starts.add_metric(key, pool.start_seconds)
            for part, seconds in pool.first_score:
                first_scores.add_metric([*key, part], seconds)
        return families

    def families(self) -> tuple[GaugeMetricFamily, ...]:
        """The families, without a series."""
        return (
            GaugeMetricFamily(
                "rewardpool_pool_info",
                "What the pool serves and in which revision. Always 1.",
                labels=(*POOL_LABELS, "engine", "model_type", "revision"),
            ),
            GaugeMetricFamily(
                "rewardpool_pool_replicas",
                "Workers of the pool: recommended by policies, desired, ready (in every router), starting, draining,"
                " parked.",
                labels=(*POOL_LABELS, "state"),
            ),
            GaugeMetricFamily(
                "rewardpool_pool_condition",
                "1 where the status of the pool's condition is True, else 0.",
                labels=(*POOL_LABELS, "type"),
            ),
            GaugeMetricFamily(
                "rewardpool_pool_requests",
                "Requests at the pool's routers: in_flight at a worker, or waiting for one. No series while unknown.",
                labels=(*POOL_LABELS, "state"),
            ),
            GaugeMetricFamily(
                "rewardpool_pool_scaling_limit",
                "1 for what keeps the desired replicas from being those recommended. No series where nothing does.",
                labels=(*POOL_LABELS, "limit"),
            ),
            GaugeMetricFamily(
                "rewardpool_pool_demands",
                "Training jobs that announce to the pool: live, stalled (of the live ones), lapsed, ignored.",
                labels=(*POOL_LABELS, "state"),
            ),
            GaugeMetricFamily(
                "rewardpool_pool_service_rate",
                "Requests that one busy replica answers in a second, as measured. No series until then.",
                labels=POOL_LABELS,
            ),
            GaugeMetricFamily(
                "rewardpool_pool_start_seconds",
                "Seconds from making to first score of the slowest of the last replicas. No series until one was seen.",
                labels=POOL_LABELS,
            ),
            GaugeMetricFamily(
                "rewardpool_pool_first_score_seconds",
                "What the last request at zero waited for until its score: decision, scheduling, pull, download, load,"
                " answer. No series until there was one.",
                labels=(*POOL_LABELS, "part"),
            ),
            GaugeMetricFamily(
                "rewardpool_pool_failing_since_timestamp_seconds",
                "Unix time since which a step of the pool's passes fails, and the reason. No series while none does.",
                labels=(*POOL_LABELS, "step", "reason"),
            ),
        )
