"""A pool that is deleted while its watch is broken: the next list does not have it.

A real API server with its controllers, routers and function workers, and the operator as a process; only the node is a
stand-in. Another API server's deletion is made in etcd, while the one API server there is is away.
"""

import pytest
from support.operator_cluster import NAMESPACE, Cluster
from support.processes import http

from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "vanishing"


def known_pools(cluster: Cluster) -> int:
    count: int = http("GET", f"http://127.0.0.1:{cluster.health_port}/healthz")[2]["pools"]
    return count


def test_nothing_is_made_again_for_a_pool_whose_deletion_no_watch_told(cluster: Cluster) -> None:
    cluster.apply(POOL, replicas=1)
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=60, what="the pool is ready")
    with cluster.plane.api_server_away():
        cluster.plane.delete_in_etcd(group=names.GROUP, plural=names.PLURAL, namespace=NAMESPACE, name=POOL)
    cluster.eventually(lambda: known_pools(cluster) == 0, seconds=60, what="the operator knows that the pool is gone")
    selector = f"{names.LABEL_POOL}={POOL}"
    for kind in ("deployment", "pod", "service", "secret", "configmap"):
        cluster.eventually(lambda kind=kind: not cluster.all(kind, selector), seconds=60, what=f"no {kind} is left")
