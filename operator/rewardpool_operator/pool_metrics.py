"""Metrics of each pool: its figures as of its last pass, made into series at each scrape.

So no series can outlive what it is about: a revision, a limit, a pool.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rewardpool_api import RewardPool, RewardPoolStatus

POOL_LABELS: Final = ("namespace", "pool")
REPLICAS: Final = "rewardpool_pool_replicas"
FAILING: Final = "rewardpool_pool_failing_since_timestamp_seconds"

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels beside those of the pool, and the figure."""
Read = Callable[[RewardPool, RewardPoolStatus], Samples]

Family = GaugeMetricFamily | CounterMetricFamily

_FAMILIES: Final[dict[str, tuple[type[Family], str, tuple[str, ...], Read]]] = {}
"""Name -> kind, meaning, labels beside those of the pool, and what it says of a pool; a counter's without `_total`."""


def _gauge(name: str, meaning: str, *labels: str) -> Callable[[Read], Read]:
    def added(read: Read) -> Read:
        _FAMILIES[name] = (GaugeMetricFamily, meaning, labels, read)
        return read

    return added


def _counter(name: str, meaning: str, *labels: str) -> Callable[[Read], Read]:
    def added(read: Read) -> Read:
        _FAMILIES[name.removesuffix("_total")] = (CounterMetricFamily, meaning, labels, read)
        return read

    return added


@_gauge(
    "rewardpool_pool_info", "What the pool serves and in which revision. Always 1.", "engine", "model_type", "revision"
)
def _info(pool: RewardPool, status: RewardPoolStatus) -> Samples:
    yield (pool.spec.engine.name, pool.spec.model.type, status.current_revision), 1


@_gauge(
    REPLICAS,
    "Workers of the pool: recommended by policies, desired, ready (in every router), starting, draining, parked.",
    "state",
)
def _replicas(_: RewardPool, status: RewardPoolStatus) -> Samples:
    yield ("desired",), status.scaling.desired if status.scaling else status.replicas
    yield ("ready",), status.ready_replicas
    yield ("starting",), max(0, status.replicas - status.ready_replicas)
    yield ("draining",), status.draining_replicas
    yield ("parked",), status.parked_replicas
    if status.scaling is not None and status.scaling.recommended_replicas is not None:
        yield ("recommended",), status.scaling.recommended_replicas


@_gauge("rewardpool_pool_condition", "1 where the status of the pool's condition is True, else 0.", "type")
def _conditions(_: RewardPool, status: RewardPoolStatus) -> Samples:
    return (((condition.type,), condition.status == "True") for condition in status.conditions)


@_gauge(
    "rewardpool_pool_requests",
    "Requests at the pool's routers: in_flight at a worker, or waiting for one. No series while unknown.",
    "state",
)
def _requests(_: RewardPool, status: RewardPoolStatus) -> Samples:
    load = status.load
    return ((("in_flight",), load.in_flight), (("waiting",), load.waiting)) if load else ()


@_gauge(
    "rewardpool_pool_tokens",
    "Tokens of those requests, by what jobs announce. No series where no job says how long its samples are.",
    "state",
)
def _tokens(_: RewardPool, status: RewardPoolStatus) -> Samples:
    if (load := status.load) is not None and load.tokens_in_flight is not None and load.tokens_waiting is not None:
        yield ("in_flight",), load.tokens_in_flight
        yield ("waiting",), load.tokens_waiting


@_gauge(
    "rewardpool_pool_scaling_limit",
    "1 for what keeps the desired replicas from being those recommended. No series where nothing does.",
    "limit",
)
def _limit(_: RewardPool, status: RewardPoolStatus) -> Samples:
    return (((status.scaling.limit,), 1),) if status.scaling and status.scaling.limit else ()


@_gauge(
    "rewardpool_pool_demands",
    "Training jobs that announce to the pool: live, stalled (of the live ones), lapsed, ignored.",
    "state",
)
def _demands(pool: RewardPool, status: RewardPoolStatus) -> Samples:
    if pool.spec.autoscaling is not None:
        states = [demand.state for demand in status.demands]
        yield from (((state.lower(),), states.count(state)) for state in ("Live", "Lapsed", "Ignored"))
        yield ("stalled",), sum(demand.stalled for demand in status.demands if demand.state == "Live")


@_gauge(
    "rewardpool_pool_service_rate",
    "Requests that one busy replica answers in a second, as measured. No series until then.",
)
def _service_rate(_: RewardPool, status: RewardPoolStatus) -> Samples:
    rate = status.scaling.service_rate if status.scaling else None
    return (((), rate.samples_per_second),) if rate else ()


@_gauge(
    "rewardpool_pool_service_rate_tokens",
    "Tokens that one busy replica works through in a second, as measured. No series where no job says how many.",
)
def _service_rate_tokens(_: RewardPool, status: RewardPoolStatus) -> Samples:
    rate = status.scaling.service_rate if status.scaling else None
    return (((), rate.per_replica),) if rate and rate.tokens_per_sample is not None else ()


@_gauge(
    "rewardpool_pool_start_seconds",
    "Seconds from making to first score of the slowest of the last replicas. No series until one was seen.",
)
def _start_seconds(_: RewardPool, status: RewardPoolStatus) -> Samples:
    starts = status.scaling.starts if status.scaling else ()
    return (((), max(start.seconds for start in starts)),) if starts else ()


@_gauge(
    "rewardpool_pool_first_score_seconds",
    "What the last request at zero waited for until its score: decision, scheduling, pull, download, load, answer."
    " No series until there was one.",
    "part",
)
def _first_score(_: RewardPool, status: RewardPoolStatus) -> Samples:
    first = status.first_score
    return (((part,), seconds) for part, seconds in first.parts) if first and first.waits_for is None else ()


@_counter("rewardpool_pool_gpu_seconds_total", "GPU-seconds of the pool's workers. No series without GPUs.")
def _gpu_seconds(_: RewardPool, status: RewardPoolStatus) -> Samples:
    return (((), status.costs.total(datetime.now(UTC))),) if status.costs else ()


@_counter(
    "rewardpool_job_gpu_seconds_total",
    "The pool's GPU-seconds by training job, minutes later; `_idle`: without requests, `_other`: of other callers.",
    "job",
)
def _job_gpu_seconds(_: RewardPool, status: RewardPoolStatus) -> Samples:
    if (costs := status.costs) is not None:
        yield from (((job.job,), job.gpu_seconds) for job in costs.jobs)
        yield ("_other",), costs.other_gpu_seconds
        # A pool at rest does not count anew at every pass.
        yield ("_idle",), costs.idle_gpu_seconds + (costs.held(datetime.now(UTC)) if costs.window is None else 0.0)


@_counter("rewardpool_job_samples_total", "Samples scored for the training job, by its announcements.", "job")
def _job_samples(_: RewardPool, status: RewardPoolStatus) -> Samples:
    return (((job.job,), job.samples) for job in status.costs.jobs) if status.costs else ()


@_gauge(
    FAILING,
    "Unix time since which a step of the pool's passes fails, and the reason. No series while none does.",
    "step",
    "reason",
)
def _failing(_: RewardPool, __: RewardPoolStatus) -> Samples:
    return ()  # `PoolCollector.failing` has them: a pass that fails decides no status.


def samples_of(pool: RewardPool, status: RewardPoolStatus) -> Mapping[str, Samples]:
    """Return what is shown of a pool with this status, by family, and no more: a thousand pools are kept."""
    return {name: tuple(read(pool, status)) for name, (_, _, _, read) in _FAMILIES.items()}


class PoolCollector(Collector):
    """The families of all pools, made anew at each scrape."""

    def __init__(self) -> None:
        self.pools: dict[tuple[str, str], Mapping[str, Samples]] = {}
        self.failing: dict[tuple[str, str], Sequence[tuple[str, str, float]]] = {}
        """Namespace and name -> steps that fail, why, and the Unix time since when."""

    def describe(self) -> tuple[Family, ...]:
        return tuple(
            kind(name, meaning, labels=(*POOL_LABELS, *labels))
            for name, (kind, meaning, labels, _) in _FAMILIES.items()
        )

    def collect(self) -> Iterable[Metric]:
        families = self.describe()
        # Copies: scrapes are answered by a thread of their own.
        failing = [
            ((*key, step, reason), since) for key, steps in list(self.failing.items()) for step, reason, since in steps
        ]
        pools = list(self.pools.items())
        for family in families:
            of_pools = [((*key, *labels), figure) for key, samples in pools for labels, figure in samples[family.name]]
            for labels, figure in failing if family.name == FAILING else of_pools:
                family.add_metric(labels, figure)
        return families
