"""One thing refused stays one thing refused: Secrets that may not be read, a pool that is not valid any more.

A real API server with its controllers, routers and function workers, and the operator as a process; only the node is a
stand-in. Secrets are refused by taking the rule out of the operator's Role.
"""

import base64
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGKILL
from typing import Any

import pytest
from support.operator_cluster import NAMESPACE, Cluster, seconds_until
from support.operator_process import ACCOUNT
from support.patience import PATIENCE
from support.processes import http

from cluster.processes import ClusterError
from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "kept"
LIST_SECONDS = 5.0 * PATIENCE
"""The promise: a router that restarts has its workers within this time."""
TOLD_SECONDS = 15.0
"""Secrets are read every 4 s, and what is refused twice is told."""


@pytest.fixture(scope="module", autouse=True)
def pool(cluster: Cluster) -> None:
    cluster.apply(POOL, replicas=1)
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=60, what="the pool is ready")


@contextmanager
def secrets_refused(cluster: Cluster) -> Iterator[None]:
    """The operator may not read, make or change a Secret."""
    role: dict[str, Any] = json.loads(cluster.kubectl("get", "role", ACCOUNT, "-o", "json"))
    rules = [rule for rule in role["rules"] if "secrets" not in rule["resources"]]
    set_rules(cluster, rules)
    try:
        yield
    finally:
        set_rules(cluster, role["rules"])


def set_rules(cluster: Cluster, rules: list[dict[str, Any]]) -> None:
    cluster.kubectl("patch", "role", ACCOUNT, "--type=merge", "-p", json.dumps({"rules": rules}))


def keys(cluster: Cluster) -> dict[str, Any]:
    secrets = names.key_secret(POOL), names.admin_secret(POOL)
    return {name: (cluster.get("secret", name) or {})["data"] for name in secrets}


def router_url(cluster: Cluster) -> str:
    (pod,) = (pod for pod in cluster.pods(POOL, "router") if "deletionTimestamp" not in pod["metadata"])
    return f"http://{pod['status']['podIP']}:{names.ROUTER_PORT}"


def listed(cluster: Cluster) -> set[str]:
    admin = base64.b64decode(keys(cluster)[names.admin_secret(POOL)][names.SECRET_KEY]).decode()
    status, _, answer = http("GET", f"{router_url(cluster)}/workers", key=admin)
    return {worker["url"] for worker in answer["workers"]} if status == 200 else set()


def workers(cluster: Cluster) -> set[str]:
    return {f"http://{pod['status'].get('podIP')}:{names.WORKER_PORT}" for pod in cluster.pods(POOL, "worker")}


def seconds_to_the_list_of_a_restarted_router(cluster: Cluster) -> float:
    (pod,) = cluster.pods(POOL, "router")
    os.kill(cluster.kubelet.pid(pod), SIGKILL)
    back = seconds_until(lambda: http("GET", f"{router_url(cluster)}/health", seconds=2)[0] == 200, limit=20 * PATIENCE)
    assert back < 20 * PATIENCE, "the router did not come back"
    return seconds_until(lambda: listed(cluster) == workers(cluster), limit=20)


def degraded(cluster: Cluster) -> str:
    return str(cluster.condition(POOL, "Degraded").get("reason"))


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
        text: str = response.read().decode()
    return text


def failing(cluster: Cluster) -> list[str]:
    """The steps of the pool that fail, by the operator's own word."""
    found = json.loads(get(cluster.health_port, "/healthz"))["failing"].get(f"{NAMESPACE}/{POOL}", [])
    return [one["step"] for one in found]


def test_a_pool_whose_secrets_are_refused_keeps_its_routers_lists(cluster: Cluster) -> None:
    before = keys(cluster)
    with secrets_refused(cluster):
        took = [seconds_to_the_list_of_a_restarted_router(cluster)]
        cluster.eventually(lambda: degraded(cluster) == "SecretsUnreadable", seconds=TOLD_SECONDS, what="it says so")
        took.append(seconds_to_the_list_of_a_restarted_router(cluster))
        cluster.kubectl("scale", "rewardpool", POOL, "--replicas=2")
        cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=30, what="a second worker serves")
        print("seconds until a restarted router has its workers:", *(f"{seconds:.1f}" for seconds in took))
        assert max(took) < LIST_SECONDS
        told = cluster.condition(POOL, "Degraded")["message"]
        assert "since 20" in told
        assert "secrets" in told
        assert "is forbidden" in told
        assert cluster.condition(POOL, "Serving")["status"] == "True"
        cluster.eventually(lambda: failing(cluster) == ["Secrets"], seconds=10, what="nothing else fails")
        assert 'reason="SecretsUnreadable",step="Secrets"' in get(cluster.metrics_port, "/metrics")
    cluster.eventually(lambda: degraded(cluster) == "AsExpected", seconds=TOLD_SECONDS, what="nothing is wrong")
    assert keys(cluster) == before
    cluster.eventually(lambda: failing(cluster) == [], seconds=10, what="nothing fails")


def test_an_operator_that_starts_while_secrets_are_refused_says_that_it_has_no_keys(cluster: Cluster) -> None:
    before = keys(cluster)
    cluster.kill_operator()
    with secrets_refused(cluster):
        cluster.start_operator()
        cluster.eventually(lambda: degraded(cluster) == "SecretsUnreadable", seconds=TOLD_SECONDS, what="it says so")
        serving = cluster.condition(POOL, "Serving")
        assert (serving["status"], serving["reason"]) == ("Unknown", "SecretsUnreadable")
    cluster.eventually(lambda: degraded(cluster) == "AsExpected", seconds=TOLD_SECONDS, what="nothing is wrong")
    cluster.eventually(lambda: listed(cluster) == workers(cluster), seconds=LIST_SECONDS, what="the list is whole")
    assert cluster.condition(POOL, "Ready")["reason"] == "Serving"
    assert keys(cluster) == before


def test_a_pool_that_a_stricter_schema_would_refuse_keeps_its_size_and_its_routers(cluster: Cluster) -> None:
    crd = f"{names.PLURAL}.{names.GROUP}"
    most = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/router/properties/replicas/maximum"
    before = {pod["metadata"]["name"] for pod in cluster.pods(POOL, "worker")}

    def change(operation: dict[str, Any]) -> None:
        cluster.plane.kubectl("patch", "crd", crd, "--type=json", "-p", json.dumps([{"path": most, **operation}]))

    def is_stored() -> bool:
        patch = json.dumps({"spec": {"router": {"replicas": 99}}})
        cluster.kubectl("patch", "rewardpool", POOL, "--type=merge", "-p", patch)
        return True

    change({"op": "remove"})
    try:
        cluster.eventually(lambda: _succeeds(is_stored), seconds=20, what="the API server takes it")
        # A changed CRD ends watches.
        cluster.eventually(lambda: degraded(cluster) == "InvalidObject", seconds=20, what="it says so")
        assert "spec.router.replicas" in cluster.condition(POOL, "Degraded")["message"]
        assert seconds_to_the_list_of_a_restarted_router(cluster) < LIST_SECONDS
        assert {pod["metadata"]["name"] for pod in cluster.pods(POOL, "worker")} == before
    finally:
        patch = json.dumps({"spec": {"router": {"replicas": 1}}})
        cluster.kubectl("patch", "rewardpool", POOL, "--type=merge", "-p", patch)
        change({"op": "add", "value": 16})
    cluster.eventually(lambda: degraded(cluster) == "AsExpected", seconds=20, what="nothing is wrong")


def _succeeds(what: Any) -> bool:
    try:
        return bool(what())
    except ClusterError:
        return False


def test_a_pool_whose_certificate_does_not_exist_says_so(cluster: Cluster) -> None:
    cluster.apply("uncertified", replicas=1, router={"tls": {"secretName": "nobody-makes-it"}})
    cluster.eventually(
        lambda: cluster.condition("uncertified", "Degraded").get("reason") == "TlsUnusable",
        seconds=10,
        what="it says so",
    )
    cluster.kubectl("delete", "rewardpool", "uncertified")
