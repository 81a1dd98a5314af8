"""Metrics of the operator and its pools, for Prometheus.

The gauges and costs of a pool are made at each scrape (`pool_metrics.py`), and a pool that is forgotten is gone with
all of its series. Labels are bounded by what there is: pools, at most 32 jobs of each, and words of fixed lists.
Nothing about single workers or requests is exposed here; routers and engines have metrics of their own.

Names follow https://prometheus.io/docs/practices/naming/; docs/reference-status.md lists them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import version
from time import time
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from rewardpool_api import RewardPool, RewardPoolStatus
from rewardpool_api.reasons import EventReason
from rewardpool_kube.resources import Verb
from rewardpool_operator.pool_metrics import POOL_LABELS, REPLICAS, PoolCollector, Samples, samples_of
from rewardpool_worker.engine_side.worker_metrics import encoder_for

Change = Literal["join", "leave"]
Reason = Literal["refused", "unreachable", "defect"]

PASS_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_ROLLOUT_ENDS: Final[Mapping[str, str]] = {
    EventReason.ROLLOUT_COMPLETED: "completed",
    EventReason.ROLLED_BACK: "rolled_back",
}
_CHANGES: Final = ("join", "leave")
_DIRECTIONS: Final = ("up", "down")


class Metrics:
    """All metrics of one operator, in a registry of their own."""

    def __init__(self) -> None:
        # A second series for every counter, with the time of its making, which nothing here reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._pools = PoolCollector()
        registry.register(self._pools)
        ProcessCollector(registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, buckets=PASS_SECONDS, registry=registry)
        self._scaling_changes = counter(
            "rewardpool_pool_scaling_changes_total",
            "Changes of the pool's desired replicas.",
            (*POOL_LABELS, "direction"),
        )
        self._router_repairs = counter(
            "rewardpool_pool_router_repairs_total",
            "Differences of a router's worker list from the workers, repaired.",
            (*POOL_LABELS, "change"),
        )
        self._rollouts = counter(
            "rewardpool_pool_rollouts_total", "Rollouts of the pool that ended.", (*POOL_LABELS, "outcome")
        )
        self._object_repairs = counter(
            "rewardpool_object_repairs_total",
            "Owned objects that somebody had changed or deleted, put back.",
            ("kind",),
        )
        self._reconcile_seconds = histogram("rewardpool_reconcile_seconds", "Seconds of a pass over one pool.")
        self._reconcile_own_seconds = histogram(
            "rewardpool_reconcile_own_seconds",
            "Seconds of a pass over one pool in which it waited for no answer of the API server.",
        )
        self._reconcile_wait_seconds = histogram(
            "rewardpool_reconcile_wait_seconds", "Seconds from a pass being due to its beginning."
        )
        self._reconcile_failures = counter(
            "rewardpool_reconcile_failures_total",
            "Steps of passes that failed: refused by the API server, which was unreachable, or by a defect.",
            ("reason",),
        )
        self._queue_length = gauge("rewardpool_reconcile_queue_length", "Pools that are due and wait for their pass.")
        self._kube_requests = counter(
            "rewardpool_kube_requests_total",
            "Requests to the API server by verb (as in RBAC) and HTTP status; code is 'none' where no answer came.",
            ("verb", "code"),
        )
        self._watch_last_seen = gauge(
            "rewardpool_watch_last_seen_timestamp_seconds",
            "Unix time at which the watch of the resource last said anything.",
            ("resource",),
        )
        self._left_out = counter(
            "rewardpool_left_out_total",
            "Objects and answers from outside, or parts of them, that made no sense and were left out of a look.",
            ("kind",),
        )
        self._namespace_served = gauge(
            "rewardpool_namespace_served",
            "1 for a watched namespace whose pools are looked after, 0 for one where something may not be seen.",
            ("namespace",),
        )
        self._leader = gauge("rewardpool_leader", "1 in the operator that acts, 0 in one that stands by.")
        self._build_info = gauge("rewardpool_build_info", "The running version. Always 1.", ("version",))
        self._build_info.labels(version("rewardpool")).set(1)

    def described(self) -> dict[str, tuple[Metric, tuple[str, ...]]]:
        """Every family of ours with its labels, by the name of its series; for documentation."""
        made = [part for part in vars(self).values() if isinstance(part, MetricWrapperBase)]
        found = [(family, tuple(wrapper._labelnames)) for wrapper in made for family in wrapper.describe()]
        found += [(family, tuple(family._labelnames)) for family in self._pools.describe()]
        return {family.name + "_total" * (family.type == "counter"): (family, labels) for family, labels in found}

    def record_pool(self, pool: RewardPool, status: RewardPoolStatus) -> None:
        """Tell these figures of the pool from now on, and count a change of its desired replicas."""
        key = pool.metadata.namespace, pool.metadata.name
        now, before = samples_of(pool, status), self._pools.pools.get(key)
        if before is None:
            # A counter whose first value is 1 has not increased for Prometheus: the first change would be on no panel.
            for counter, values in self._counters_of_pools():
                for value in values:
                    counter.labels(*key, value)
        elif _desired(now) != _desired(before):
            self._scaling_changes.labels(*key, "up" if _desired(now) > _desired(before) else "down").inc()
        self._pools.pools[key] = now

    def record_failing(self, namespace: str, name: str, failing: Sequence[tuple[str, str, datetime]]) -> None:
        """Tell from now on which steps of the pool's passes fail: step, reason, since when."""
        found = [(step, reason, since.timestamp()) for step, reason, since in failing]
        self._pools.failing.pop((namespace, name), None)
        if found:
            self._pools.failing[namespace, name] = found

    def forget_pool(self, namespace: str, name: str) -> None:
        self._pools.pools.pop((namespace, name), None)
        self._pools.failing.pop((namespace, name), None)
        for counter, values in self._counters_of_pools():
            for value in values:
                counter.remove(namespace, name, value)

    def _counters_of_pools(self) -> tuple[tuple[Counter, tuple[str, ...]], ...]:
        return (
            (self._scaling_changes, _DIRECTIONS),
            (self._router_repairs, _CHANGES),
            (self._rollouts, tuple(_ROLLOUT_ENDS.values())),
        )

    def router_repaired(self, namespace: str, name: str, change: Change) -> None:
        self._router_repairs.labels(namespace, name, change).inc()

    def record_events(self, namespace: str, name: str, reasons: Iterable[str]) -> None:
        """Count the rollouts of the pool that completed or were rolled back, by the reasons of its events."""
        for reason in reasons:
            if reason in _ROLLOUT_ENDS:
                self._rollouts.labels(namespace, name, _ROLLOUT_ENDS[reason]).inc()

    def object_repaired(self, kind: str) -> None:
        self._object_repairs.labels(kind).inc()

    def pass_ended(self, seconds: float, *, own_seconds: float) -> None:
        """A pass took so long, whatever came of it, and so long without the API server's own time."""
        self._reconcile_seconds.observe(seconds)
        self._reconcile_own_seconds.observe(own_seconds)

    def pass_began(self, waited_seconds: float) -> None:
        self._reconcile_wait_seconds.observe(waited_seconds)

    def pass_failed(self, reason: Reason) -> None:
        self._reconcile_failures.labels(reason).inc()

    def read_queue_length(self, length: Callable[[], float]) -> None:
        self._queue_length.set_function(length)

    def kube_request(self, verb: Verb, code: int | None) -> None:
        """The API server answered a request with this HTTP status; None where it did not answer."""
        self._kube_requests.labels(verb, "none" if code is None else str(code)).inc()

    def watch_spoke(self, resource: str, *, at: float | None = None) -> None:
        """The watch of a resource (its plural name) said something at this Unix time; None means now."""
        self._watch_last_seen.labels(resource).set(time() if at is None else at)

    def left_out(self, kind: str) -> None:
        self._left_out.labels(kind).inc()

    def serves_namespace(self, namespace: str, serves: bool) -> None:
        self._namespace_served.labels(namespace).set(serves)

    def read_leading(self, leads: Callable[[], bool]) -> None:
        self._leader.set_function(leads)

    async def exposition(self, accept: str) -> bytes:
        """Return all of them, in the format that an `Accept` header asks for."""
        encode, _ = encoder_for(accept)
        # Thousands of series take longer than passes should wait.
        return await asyncio.to_thread(encode, self.registry)


def _desired(samples: Mapping[str, Samples]) -> float:
    return dict(samples[REPLICAS])[("desired",)]


METRICS: Final = Metrics()
