"""The number of routers of pools that say none, and of one that does, on a real API server."""

import json
from collections.abc import Iterator

import pytest
from support.operator_cluster import Cluster

from rewardpool_api import names

pytestmark = pytest.mark.real

ROUTERS = {"by-default": 2, "of-its-own": 1}


@pytest.fixture(scope="module")
def two_by_default(cluster: Cluster) -> Iterator[Cluster]:
    """Both pools served with one router, and then the operator's default became two."""
    try:
        cluster.apply("by-default", replicas=1)
        cluster.apply("of-its-own", replicas=1, router={"replicas": 1, "requestTimeoutSeconds": 10})
        for pool in ROUTERS:
            cluster.eventually(lambda pool=pool: cluster.is_ready(pool, replicas=1), seconds=90, what=f"{pool} serves")
        cluster.stop_operator()
        cluster.start_operator(**{names.ENV_POOL_DEFAULTS: json.dumps({"router": {"replicas": 2}})})
        cluster.eventually(
            lambda: "2 routers hold" in cluster.condition("by-default", "RouterReady")["message"],
            seconds=60,
            what="the pool without a number has two routers",
        )
        yield cluster
    finally:
        cluster.clear()
        cluster.stop_operator()
        cluster.start_operator()


def test_a_pool_has_the_default_number_of_routers_unless_it_says_another(two_by_default: Cluster) -> None:
    assert {pool: len(two_by_default.pods(pool, "router")) for pool in ROUTERS} == ROUTERS
    assert {pool: two_by_default.status(pool)["routerReplicas"] for pool in ROUTERS} == ROUTERS


def test_the_default_is_not_stored_in_the_pool(two_by_default: Cluster) -> None:
    stored = two_by_default.get("rewardpool", "by-default") or {}
    assert "replicas" not in stored["spec"]["router"]


def test_a_disruption_may_take_one_router_of_the_default_two(two_by_default: Cluster) -> None:
    two_by_default.eventually(
        lambda: (two_by_default.get("pdb", "by-default-router") or {}).get("spec", {}).get("minAvailable") == 1,
        seconds=20,
        what="the budget keeps one of two routers",
    )
    assert two_by_default.get("pdb", "of-its-own-router") is None
