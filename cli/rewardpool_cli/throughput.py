"""Requests that the routers of a pool in a cluster count.

The routers' metrics are read through the API server's proxy to pods, so nothing else has to be reachable. Who may not
use it, or where a NetworkPolicy keeps the API server out, sees no figure.
"""

import asyncio

from rewardpool_api import RewardPool, names
from rewardpool_cli.cluster import Cluster
from rewardpool_cli.rates import requests_in
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import PODS


async def requests_of(cluster: Cluster, pool: RewardPool) -> float | None:
    """Return the requests of all routers of the pool; None where they cannot be read."""
    kube, namespace = cluster.kube, pool.metadata.namespace
    selector = f"{names.LABEL_POOL}={pool.metadata.name},{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}"
    try:
        pods = await kube.list(PODS, namespace, selector=selector)
        running = [pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") == "Running"]
        paths = [PODS.path(namespace, f"{pod}:{names.ROUTER_METRICS_PORT}", "proxy/metrics") for pod in running]
        texts = await asyncio.gather(*(kube.text(path) for path in paths))
    except (KubeError, KubeUnreachableError):
        return None
    return sum(map(requests_in, texts)) if texts else None
