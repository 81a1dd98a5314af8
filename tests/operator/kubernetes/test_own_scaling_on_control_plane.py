"""A pool that follows its load: from nobody to the first request, larger under more of them, and back to nobody.

Real API server with controllers, a real router and function workers; the node is a stand-in.
"""

import asyncio
import base64
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
from support.kstatus import words_for
from support.operator_cluster import Cluster, seconds_until
from support.patience import PATIENCE
from support.processes import http

from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "alive"
SCORE_SECONDS = 0.5
TARGET = 4
SCALING = {
    "minReplicas": 0,
    "maxReplicas": 3,
    "cooldownSeconds": 2,
    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": TARGET}},
    "scaleDown": {"stabilizationWindowSeconds": 1},
}


@pytest.fixture(scope="module", autouse=True)
def pool(cluster: Cluster) -> None:
    cluster.apply(POOL, autoscaling=SCALING)
    cluster.eventually(lambda: is_at_zero(cluster), seconds=60, what="the pool is at zero, and ready to be asked")


def is_at_zero(cluster: Cluster) -> bool:
    status = cluster.status(POOL)
    return status.get("replicas") == 0 and cluster.condition(POOL, "RouterReady").get("status") == "True"


def scaling(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.status(POOL).get("scaling") or {}
    return found


@contextmanager
def callers(cluster: Cluster, count: int, *, router: dict[str, Any] | None = None) -> Iterator[Counter[int]]:
    """So many who ask again as soon as they have their answer; gives the answers by HTTP status."""
    if router is None:
        (router,) = cluster.pods(POOL, "router")
    secret = cluster.get("secret", names.key_secret(POOL)) or {}
    key = base64.b64decode(secret["data"][names.SECRET_KEY]).decode()
    url = f"http://{router['status']['podIP']}:{names.ROUTER_PORT}/v1/embeddings"
    sample = {"data_source": "", "solution_str": "x", "ground_truth": "", "extra_info": {"seconds": SCORE_SECONDS}}
    body = {"model": POOL, "input": json.dumps(sample)}
    statuses, over = Counter[int](), threading.Event()

    async def ask(session: aiohttp.ClientSession) -> None:
        while not over.is_set():
            async with session.post(url, json=body, headers={"Authorization": f"Bearer {key}"}) as answer:
                statuses[answer.status] += 1

    async def ask_side_by_side() -> None:
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(ask(session) for _ in range(count)))

    thread = threading.Thread(target=asyncio.run, args=(ask_side_by_side(),))
    thread.start()
    try:
        yield statuses
    finally:
        over.set()
        thread.join()


def test_whoever_applied_a_pool_at_zero_waits_no_longer_for_it(cluster: Cluster) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", f"rewardpool/{POOL}", "--timeout=10s")
    assert words_for(cluster.get("rewardpool", POOL) or {}) == ["Current"]
    assert cluster.kubectl("get", "rp", POOL, "--no-headers").split()[:3] == [POOL, "0/0", "AtZero"]
    assert cluster.condition(POOL, "Serving")["status"] == "False"


def test_a_pool_follows_its_load_from_zero_and_back_and_no_caller_fails(cluster: Cluster) -> None:
    with callers(cluster, 1) as first:
        cluster.eventually(lambda: first[200], seconds=30, what="the first request has its score")
    with callers(cluster, 3 * TARGET) as many:
        cluster.eventually(lambda: cluster.is_ready(POOL, replicas=3), seconds=30, what="three replicas serve")
        cluster.eventually(lambda: "serviceRate" in scaling(cluster), seconds=30, what="the rate was measured")
    cluster.eventually(lambda: is_at_zero(cluster), seconds=60, what="the pool is at zero again")
    assert (set(first), set(many)) == ({200}, {200})


def test_what_the_first_request_waited_for_is_told_by_parts(cluster: Cluster) -> None:
    first = (cluster.get("rewardpool", POOL) or {})["status"]["firstScore"]
    assert "waitsFor" not in first
    # Not of one part: this node starts a worker in less time than may lie between two looks.
    assert first["seconds"] > first["parts"]["decision"]
    assert sum(first["parts"].values()) == pytest.approx(first["seconds"], abs=0.01)


def test_what_a_replica_does_and_takes_to_start_is_learned(cluster: Cluster) -> None:
    learned = scaling(cluster)
    (measured, *_) = learned["serviceRate"]["measured"]
    # Nobody answers faster than one score after the other for each request that it has.
    assert 0 < measured["rate"] <= 1.5 * 3 * TARGET / SCORE_SECONDS
    # One that answers at the first look was not watched from its making on, and has no time.
    assert 0 < len(learned["starts"]) <= 3
    assert all(start["seconds"] > 0 for start in learned["starts"])


@contextmanager
def frozen_router(cluster: Cluster, router: dict[str, Any] | None = None) -> Iterator[None]:
    """It takes connections and says nothing."""
    if router is None:
        (router,) = cluster.pods(POOL, "router")
    pid = cluster.kubelet.pid(router)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.long  # so does one of the simulated runs, in which routers fall silent
def test_a_router_that_hangs_takes_nobody_away(cluster: Cluster) -> None:
    with callers(cluster, 2 * TARGET):
        cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=30, what="two replicas serve")
        with frozen_router(cluster):
            cluster.eventually(
                lambda: cluster.condition(POOL, "ScalingActive").get("reason") == "MetricsUnavailable",
                seconds=30,
                what="its figures are missing",
            )
            assert seconds_until(lambda: scaling(cluster)["desired"] != 2, limit=5) >= 5
    cluster.eventually(lambda: is_at_zero(cluster), seconds=60, what="the pool is at zero once the router says so")


@pytest.fixture
def two_routers(cluster: Cluster) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two exposed routers of a pool at zero."""
    cluster.apply(POOL, autoscaling=SCALING, router={"replicas": 2})
    cluster.eventually(
        lambda: is_at_zero(cluster) and len(cluster.pods(POOL, "router")) == len(exposed_routers(cluster)) == 2,
        seconds=60,
        what="the pool is at zero, with two exposed routers",
    )
    first, second = exposed_routers(cluster)
    return first, second


def exposed_routers(cluster: Cluster) -> list[dict[str, Any]]:
    """Router pods that are to stay, and whose readiness gate is open."""
    return [
        pod
        for pod in cluster.pods(POOL, "router")
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            (one["type"], one["status"]) == (names.CONDITION_HOLDS_WORKERS, "True")
            for one in pod["status"].get("conditions", [])
        )
    ]


def listed(cluster: Cluster, name: str) -> set[str]:
    """Addresses in the worker list of the router's pod, where it is now; none while it does not answer."""
    pod = cluster.get("pod", name) or {}
    secret = cluster.get("secret", names.admin_secret(POOL)) or {}
    admin = base64.b64decode(secret["data"][names.SECRET_KEY]).decode()
    _, _, answer = http("GET", f"http://{pod['status']['podIP']}:{names.ROUTER_PORT}/workers", key=admin)
    return {worker["url"] for worker in (answer or {}).get("workers", ())}


@pytest.mark.long  # the end-to-end run has a silent router and one that moves
def test_a_pool_at_zero_grows_by_one_router_while_the_other_one_is_silent(
    cluster: Cluster, two_routers: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    silent, answering = two_routers
    with frozen_router(cluster, silent):
        cluster.eventually(
            lambda: cluster.condition(POOL, "Degraded").get("reason") == "RouterSilent",
            seconds=30,
            what="the silent router is told",
        )
        assert silent["metadata"]["name"] in cluster.condition(POOL, "Degraded")["message"]
        with callers(cluster, TARGET, router=answering) as answers:
            took = seconds_until(lambda: scaling(cluster)["desired"] > 0, limit=3 * PATIENCE)
            cluster.eventually(lambda: answers[200], seconds=30, what="requests have their scores")
            cluster.eventually(
                lambda: (
                    [pod["metadata"]["name"] for pod in exposed_routers(cluster)] == [answering["metadata"]["name"]]
                ),
                seconds=10,
                what="trainers are sent to the router that answers alone",
            )
    print(f"from zero with a silent router: {took:.2f} s")
    assert took < 3 * PATIENCE
    assert set(answers) == {200}


@pytest.mark.long
def test_a_router_pod_with_a_new_address_has_its_workers_there(
    cluster: Cluster, two_routers: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    moved, stays = two_routers
    name, before = moved["metadata"]["name"], moved["status"]["podIP"]
    with callers(cluster, TARGET, router=stays) as answers:
        cluster.eventually(lambda: listed(cluster, name), seconds=30, what="it has a worker")
        cluster.kubelet.move(moved)
        cluster.eventually(
            lambda: (cluster.get("pod", name) or {})["status"]["podIP"] != before, seconds=10, what="it has moved"
        )
        took = seconds_until(lambda: listed(cluster, name), limit=5 * PATIENCE)
    print(f"workers at the router's new address: {took:.2f} s")
    assert took < 5 * PATIENCE
    assert set(answers) == {200}
