"""Keys that change under steady load: a real API server, real routers and workers, the operator as a process.

The trainer is the real client, whose discovery reads the pool and its Secret from the API server. Stand-ins: the node,
whose mounted Secrets are seconds late where a kubelet's are a minute, and the Service's address.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.operator_cluster import Cluster
from support.processes import http
from support.stand_in_service import StandInService, ready_routers
from support.steady_trainer import training

from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "rotating"
SECRET, ADMIN_SECRET = names.key_secret(POOL), names.admin_secret(POOL)
BY_HAND = "a-key-that-somebody-wrote-by-hand"
NO_KEY = "too short"
SEEN: set[str] = set()
"""Every key that the pool ever had, as far as these tests looked."""


@pytest.fixture(scope="module")
def service(cluster: Cluster) -> Iterator[StandInService]:
    """The pool serves with two workers behind two routers."""
    cluster.apply(POOL, replicas=2, router={"replicas": 2, "requestTimeoutSeconds": 10})
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=60, what="the pool is ready")
    with StandInService(lambda: ready_routers(cluster.pods(POOL, "router"))) as service:
        yield service


def entries(cluster: Cluster, secret: str = SECRET) -> dict[str, str]:
    data = (cluster.get("secret", secret) or {}).get("data") or {}
    found = {name: base64.b64decode(value).decode() for name, value in data.items()}
    SEEN.update(found.values())
    return found


def rotation(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.status(POOL).get("auth", {}).get("rotation") or {}
    return found


def is_done(cluster: Cluster, *, before: dict[str, Any]) -> bool:
    """Whether another rotation than that before has come to its end, and left one key."""
    found = rotation(cluster)
    return found.get("phase") == "Done" and found != before and set(entries(cluster)) == {names.SECRET_KEY}


def statuses(cluster: Cluster, key: str) -> set[int]:
    """What every router and every worker says to somebody with that key."""
    asked = [("router", names.ROUTER_PORT, "/get_loads"), ("worker", names.WORKER_PORT, names.LOAD_PATH)]
    return {
        http("GET", f"http://{pod['status']['podIP']}:{port}{path}", key=key)[0]
        for component, port, path in asked
        for pod in cluster.pods(POOL, component)
        if "deletionTimestamp" not in pod["metadata"]
    }


def rotate(cluster: Cluster, request: str) -> None:
    cluster.kubectl("annotate", "rewardpool", POOL, f"{names.ANNOTATION_ROTATE_KEY}={request}", "--overwrite")


@pytest.mark.long  # the end-to-end run rotates keys on request
def test_new_keys_on_request_cost_no_request(cluster: Cluster, service: StandInService) -> None:
    before, admin_before = entries(cluster)[names.SECRET_KEY], entries(cluster, ADMIN_SECRET)[names.SECRET_KEY]
    told_before = rotation(cluster)
    with training(cluster, POOL, service) as trainer:
        rotate(cluster, "1")
        cluster.eventually(lambda: is_done(cluster, before=told_before), seconds=120, what="the keys have changed")
    assert set(trainer.outcomes) == {"right"}
    assert trainer.report.unscored == 0
    assert rotation(cluster)["request"] == "1"
    admin = entries(cluster, ADMIN_SECRET)
    assert admin[names.SECRET_KEY] != admin_before
    assert names.PREVIOUS_KEY not in admin
    cluster.eventually(lambda: statuses(cluster, before) == {401}, seconds=10, what="the old key is taken nowhere")
    print(f"{trainer.outcomes.total()} samples right, retries {dict(trainer.report.retries)}")


def test_a_key_edited_by_hand_is_taken_without_losing_a_request(cluster: Cluster, service: StandInService) -> None:
    told_before, before = rotation(cluster), entries(cluster)[names.SECRET_KEY]
    with training(cluster, POOL, service) as trainer:
        cluster.kubectl("patch", "secret", SECRET, "-p", json.dumps({"stringData": {names.SECRET_KEY: BY_HAND}}))
        cluster.eventually(lambda: is_done(cluster, before=told_before), seconds=120, what="the keys have changed")
    assert set(trainer.outcomes) == {"right"}
    assert entries(cluster)[names.SECRET_KEY] == BY_HAND
    cluster.eventually(lambda: statuses(cluster, before) == {401}, seconds=10, what="the old key is taken nowhere")
    print(f"{trainer.outcomes.total()} samples right, retries {dict(trainer.report.retries)}")


def test_what_cannot_be_a_key_is_taken_back(cluster: Cluster, service: StandInService) -> None:
    before = entries(cluster)
    cluster.kubectl("patch", "secret", SECRET, "-p", json.dumps({"stringData": {names.SECRET_KEY: NO_KEY}}))
    cluster.eventually(lambda: entries(cluster) == before, seconds=15, what="the key in force is back")
    told = cluster.kubectl("describe", "rewardpool", POOL)
    assert "KeyRefused" in told
    assert NO_KEY not in told


def test_beginning_and_end_are_told(cluster: Cluster, service: StandInService) -> None:
    told = cluster.kubectl("describe", "rewardpool", POOL)
    assert "KeyRotationStarted" in told
    assert "KeyRotated" in told


def test_no_key_is_anywhere_but_in_secrets_and_the_files_of_pods(cluster: Cluster, service: StandInService) -> None:
    entries(cluster, ADMIN_SECRET)
    keys = SEEN - {NO_KEY}
    kinds = "rewardpool,deployment,replicaset,pod,service,configmap,networkpolicy,poddisruptionbudget,events"
    written = cluster.kubectl("get", kinds, "-o", "yaml", "--show-managed-fields")
    logs = "".join(log.read_text() for log in cluster.logs())
    processes = [cluster.kubelet.pid(pod) for kind in ("router", "worker") for pod in cluster.pods(POOL, kind)]
    argv = "".join(Path(f"/proc/{pid}/{file}").read_text() for pid in processes for file in ("cmdline", "environ"))
    figures = "".join(
        str(http("GET", f"http://{pod['status']['podIP']}:{names.ROUTER_METRICS_PORT}/metrics"))
        for pod in cluster.pods(POOL, "router")
    )
    assert len(keys) >= 3, "two keys of the pool and one of the routers' lists were in use by now"
    for place, text in {"objects": written, "logs": logs, "processes": argv, "figures": figures}.items():
        assert text, place
        assert not [place for key in keys if key in text or base64.b64encode(key.encode()).decode() in text]
