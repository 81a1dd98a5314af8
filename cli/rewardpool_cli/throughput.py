"""Samples per second of pools in a cluster: how fast their routers' counters of requests grow.

The routers' metrics are read through the API server's proxy to pods, so nothing else has to be reachable. Who may not
use it, or where a NetworkPolicy keeps the API server out, sees no figure.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from rewardpool_api import RewardPool, names
from rewardpool_cli.cluster import Cluster
from rewardpool_operator.kubernetes.client import PODS, KubeError, KubeUnreachableError

REQUESTS: Final = "smg_router_requests_total"
"""Requests for workers, without those for a router's own list and health."""


class Throughput:
    """Remembers the counters from one look to the next."""

    def __init__(self, cluster: Cluster, *, limit: int, clock: Callable[[], float] = monotonic) -> None:
        """Measure at most `limit` pools; the clock counts seconds."""
        self._cluster = cluster
        self._limit = limit
        self._clock = clock
        self._before: dict[str, tuple[float, float]] = {}
        """Pool -> monotonic time and requests of the last look."""

    async def measure(self, pools: Sequence[RewardPool]) -> dict[str, float]:
        """Samples per second since the last look, for the pools where that is known."""
        measured = pools[: self._limit]
        totals = await asyncio.gather(*(self._total(pool) for pool in measured))
        rates, now = {}, self._clock()
        for pool, total in zip(measured, totals, strict=True):
            before = self._before.pop(pool.key, None)
            if total is None:
                continue
            self._before[pool.key] = now, total
            # Fewer than before: a router was replaced.
            if before is not None and total >= before[1]:
                rates[pool.key] = (total - before[1]) / (now - before[0])
        return rates

    async def _total(self, pool: RewardPool) -> float | None:
        kube, namespace = self._cluster.kube, pool.metadata.namespace
        selector = f"{names.LABEL_POOL}={pool.metadata.name},{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}"
        try:
            pods = await kube.list(PODS, namespace, selector=selector)
            running = [pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") == "Running"]
            paths = [PODS.path(namespace, f"{pod}:{names.ROUTER_METRICS_PORT}", "proxy/metrics") for pod in running]
            texts = await asyncio.gather(*(kube.text(path) for path in paths))
        except (KubeError, KubeUnreachableError):
            return None
        return sum(map(requests_in, texts)) if texts else None


def requests_in(text: str) -> float:
    """The requests that a router's metrics count."""
    families = text_string_to_metric_families(text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == REQUESTS)
