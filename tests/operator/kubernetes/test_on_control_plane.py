"""The operator as a process, on a real API server with its controllers, with real routers and workers.

Only the node is a stand-in (`support.loopback_kubelet`). The pool `fn` is brought up once; every test leaves it whole.
"""

import base64
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGKILL
from typing import Any

import pytest
from support.env_vars import env_vars
from support.operator_cluster import FUNCTIONS, Cluster, seconds_until
from support.patience import PATIENCE
from support.processes import http
from support.reward_functions import expected_score

from rewardpool_api import names
from rewardpool_operator.kubernetes.queue.requeue import FIGURES, SECRETS
from rewardpool_operator.kubernetes.render.common import files_name
from rewardpool_worker.mounted import router_files

pytestmark = pytest.mark.real

POOL = "fn"
SAMPLE = {"data_source": "test", "solution_str": "four", "ground_truth": "4", "extra_info": {}}
REQUEST = {"model": POOL, "input": json.dumps(SAMPLE)}
OWNED = ("deployment", "service", "secret", "configmap")
REPAIR_SECONDS = 5.0
"""The promise: within this time of the operator running, all is as declared."""


@pytest.fixture(scope="module", autouse=True)
def pool(cluster: Cluster) -> None:
    cluster.apply(POOL, replicas=1)
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=30, what="the pool is ready")


def key(cluster: Cluster, secret: str = names.key_secret(POOL)) -> str:
    found = cluster.get("secret", secret)
    return base64.b64decode(found["data"][names.SECRET_KEY]).decode() if found else ""


def router_pods(cluster: Cluster) -> list[dict[str, Any]]:
    """Those that have an address and are to stay."""
    pods = cluster.pods(POOL, "router")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and "podIP" in pod["status"]]


def router_url(cluster: Cluster) -> str:
    """The Service's address needs a network; this is the address behind it."""
    (pod,) = router_pods(cluster)
    return f"http://{pod['status']['podIP']}:{names.ROUTER_PORT}"


def listed(cluster: Cluster) -> set[str]:
    """Addresses in the router's worker list; empty while it does not answer, or is being replaced."""
    if len(router_pods(cluster)) != 1:
        return set()
    status, _, answer = http("GET", f"{router_url(cluster)}/workers", key=key(cluster, names.admin_secret(POOL)))
    return {worker["url"] for worker in answer["workers"]} if status == 200 else set()


def workers(cluster: Cluster) -> set[str]:
    return {f"http://{pod['status'].get('podIP')}:{names.WORKER_PORT}" for pod in cluster.pods(POOL, "worker")}


def score(cluster: Cluster, *, with_key: str | None) -> tuple[int, Any]:
    status, _, answer = http("POST", f"{router_url(cluster)}/v1/embeddings", REQUEST, key=with_key)
    return status, answer


def test_a_sample_scores_through_the_router(cluster: Cluster) -> None:
    status, answer = score(cluster, with_key=key(cluster))
    assert status == 200
    assert answer["data"][0]["embedding"][0] == pytest.approx(expected_score("four"))


def test_nobody_scores_without_the_key(cluster: Cluster) -> None:
    assert score(cluster, with_key=None)[0] == 401


def test_the_status_tells_a_trainer_all_it_needs(cluster: Cluster) -> None:
    status = cluster.status(POOL)
    assert status["url"] == "http://fn-router.pools.svc:8080"
    assert status["auth"] == {"secretName": "fn-key"}
    [served] = status["model"].pop("revisions")
    assert status["model"] == {"type": "Function", "engine": "python", "servedName": "fn"}
    assert served["revision"] == status["currentRevision"]
    assert (served["source"], served["servedName"]) == ("python://reward_functions:compute_score", "fn")
    assert cluster.condition(POOL, "Serving")["status"] == "True"


def events(cluster: Cluster) -> str:
    selector = f"involvedObject.kind={names.KIND},involvedObject.name={POOL}"
    return cluster.kubectl("get", "events", "--field-selector", selector, "-o", "jsonpath={.items[*].reason}")


def test_a_start_is_told_by_conditions_and_no_event(cluster: Cluster) -> None:
    assert events(cluster) == ""


def test_every_owned_object_is_owned_by_the_pool(cluster: Cluster) -> None:
    uid = (cluster.get("rewardpool", POOL) or {})["metadata"]["uid"]
    selector = f"{names.LABEL_POOL}={POOL}"
    found = json.loads(cluster.kubectl("get", ",".join(OWNED), "-l", selector, "-o", "json"))["items"]
    assert Counter(item["kind"] for item in found) == {"Deployment": 2, "Service": 1, "Secret": 2}
    owners = {item["metadata"]["name"]: item["metadata"]["ownerReferences"][0] for item in found}
    assert all(owner["uid"] == uid and owner["controller"] for owner in owners.values())


@pytest.mark.long  # the end-to-end run shrinks a pool under load, and deletes a worker
def test_workers_come_and_go_and_no_request_is_lost(cluster: Cluster) -> None:
    cluster.kubectl("scale", "rewardpool", POOL, "--replicas=2")
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=2), seconds=20, what="two workers serve")
    assert len(listed(cluster)) == 2
    with scoring_all_the_while(cluster) as answers:
        delete_a_worker(cluster)
        shrink_to_one(cluster)
    assert len(answers) > 20
    assert set(answers) == {200}


def delete_a_worker(cluster: Cluster) -> None:
    """As an eviction would: without asking the operator."""
    pod = cluster.pods(POOL, "worker")[0]
    url = f"http://{pod['status']['podIP']}:{names.WORKER_PORT}"
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    cluster.eventually(lambda: url not in listed(cluster), seconds=REPAIR_SECONDS, what="it left the router")
    cluster.eventually(
        lambda: len(workers(cluster)) == 2 and cluster.is_ready(POOL, replicas=2), seconds=20, what="two serve again"
    )


def shrink_to_one(cluster: Cluster) -> None:
    cluster.kubectl("scale", "rewardpool", POOL, "--replicas=1")
    cluster.eventually(lambda: len(listed(cluster)) == 1, seconds=REPAIR_SECONDS, what="one worker left the router")
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=20, what="one worker is left")
    cluster.eventually(lambda: listed(cluster) == workers(cluster), seconds=10, what="the right one is left")


@contextmanager
def scoring_all_the_while(cluster: Cluster) -> Iterator[list[int]]:
    """The statuses of a trainer's requests, one after the other."""
    statuses: list[int] = []
    done = threading.Event()
    secret, url = key(cluster), router_url(cluster)

    def ask() -> None:
        while not done.is_set():
            statuses.append(http("POST", f"{url}/v1/embeddings", REQUEST, key=secret)[0])
            done.wait(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield statuses
    finally:
        done.set()
        asking.join(timeout=30)


def test_a_restarted_router_gets_its_workers_back(cluster: Cluster) -> None:
    restart_router(cluster)
    cluster.eventually(lambda: listed(cluster) == workers(cluster), seconds=REPAIR_SECONDS, what="its list is whole")


def restart_router(cluster: Cluster) -> None:
    """Kill it with -9 and wait until it answers again, with an empty list."""
    (pod,) = router_pods(cluster)
    os.kill(cluster.kubelet.pid(pod), SIGKILL)
    back = seconds_until(lambda: http("GET", f"{router_url(cluster)}/health", seconds=2)[0] == 200, limit=20 * PATIENCE)
    assert back < 20 * PATIENCE, "the router did not come back"


def test_a_worker_put_on_the_list_by_hand_is_taken_off(cluster: Cluster) -> None:
    intruder = f"{router_url(cluster)}/"
    admin = key(cluster, names.admin_secret(POOL))
    assert http("POST", f"{router_url(cluster)}/workers", {"url": intruder.rstrip("/")}, key=admin)[0] == 202
    seconds_until(lambda: len(listed(cluster)) == 2, limit=2)
    cluster.eventually(lambda: listed(cluster) == workers(cluster), seconds=REPAIR_SECONDS, what="the list is right")


def owned_objects(cluster: Cluster) -> list[tuple[str, str]]:
    revision = cluster.status(POOL)["currentRevision"]
    return [
        ("service", names.router_name(POOL)),
        ("configmap", files_name(router_files())),
        ("secret", names.key_secret(POOL)),
        ("secret", names.admin_secret(POOL)),
        ("deployment", names.worker_name(POOL, revision)),
        ("deployment", names.router_name(POOL)),
    ]


@pytest.mark.parametrize("index", range(6))
def test_a_deleted_object_comes_back(cluster: Cluster, index: int) -> None:
    kind, name = owned_objects(cluster)[index]
    before = cluster.get(kind, name)
    assert before is not None
    cluster.kubectl("delete", kind, name, "--wait=false")
    cluster.eventually(
        lambda: uid_of(cluster.get(kind, name)) not in (None, uid_of(before)),
        seconds=REPAIR_SECONDS,
        what=f"{kind} {name} is back",
    )
    if kind == "secret":
        assert cluster.get(kind, name)["data"] == before["data"]  # type: ignore[index]
    cluster.eventually(lambda: is_whole(cluster), seconds=40, what="the pool serves again")


def uid_of(found: dict[str, Any] | None) -> str | None:
    return found["metadata"]["uid"] if found else None


def is_whole(cluster: Cluster) -> bool:
    settled = len(cluster.pods(POOL, "router")) == 1 and len(cluster.pods(POOL, "worker")) == 1
    return settled and cluster.is_ready(POOL, replicas=1) and listed(cluster) == workers(cluster)


def test_a_hand_edit_is_undone(cluster: Cluster) -> None:
    service = names.router_name(POOL)
    cluster.kubectl("patch", "service", service, "-p", '{"spec":{"selector":{"rewardpool.dev/component":"nobody"}}}')
    cluster.eventually(
        lambda: cluster.get("service", service)["spec"]["selector"][names.LABEL_COMPONENT] == "router",  # type: ignore[index]
        seconds=REPAIR_SECONDS,
        what="the selector is as rendered",
    )


def test_what_broke_while_the_operator_was_away_is_repaired(cluster: Cluster) -> None:
    known = key(cluster)
    cluster.stop_operator()
    for kind, name in owned_objects(cluster)[:3]:
        cluster.kubectl("delete", kind, name)
    restart_router(cluster)
    assert listed(cluster) == set()

    cluster.start_operator()
    cluster.eventually(
        lambda: (
            all(cluster.get(kind, name) for kind, name in owned_objects(cluster)[:3])
            and listed(cluster) == workers(cluster)
        ),
        seconds=REPAIR_SECONDS,
        what="all is as declared",
    )
    assert key(cluster) == known


def test_routers_are_kept_right_while_the_api_server_is_away(cluster: Cluster) -> None:
    cluster.eventually(lambda: is_whole(cluster), seconds=20, what="the pool is whole")
    cluster.cable.cut()
    try:
        restart_router(cluster)
        cluster.eventually(
            lambda: listed(cluster) == workers(cluster), seconds=REPAIR_SECONDS, what="its list is whole"
        )
        # No watch will ever tell of this.
        cluster.kubectl("delete", "service", names.router_name(POOL))
    finally:
        cluster.cable.repair()
    cluster.eventually(
        lambda: cluster.get("service", names.router_name(POOL)), seconds=REPAIR_SECONDS, what="the Service is back"
    )


def test_an_operator_whose_api_server_is_away_makes_no_more_passes_than_a_busy_one(cluster: Cluster) -> None:
    cluster.eventually(lambda: is_whole(cluster), seconds=20, what="the pool is whole")
    cluster.cable.cut()
    try:
        before = passes(cluster)
        # The Secrets are due meanwhile, and nobody can read them.
        time.sleep(2 * SECRETS.shortest)
        made = passes(cluster) - before
    finally:
        cluster.cable.repair()
    assert 1 <= made <= 5 * 2 * SECRETS.shortest


def passes(cluster: Cluster) -> float:
    """How many the operator has made, of all its pools."""
    return cluster.metric("rewardpool_reconcile_seconds_count") or 0.0


def test_health_tells_how_long_ago_a_pass_was(cluster: Cluster) -> None:
    def tells() -> bool:
        status, _, health = http("GET", f"http://127.0.0.1:{cluster.health_port}/healthz")
        assert (status, health["pools"]) == (200, 1)
        return bool(health["oldest_pass_seconds"] < REPAIR_SECONDS)

    cluster.eventually(tells, seconds=REPAIR_SECONDS, what="a pass was made")


def test_a_restarted_operator_leaves_a_whole_pool_alone(cluster: Cluster) -> None:
    cluster.eventually(lambda: is_whole(cluster), seconds=20, what="the pool is whole")
    cluster.stop_operator()
    before = written_at(cluster)
    assert any(before.values())
    cluster.start_operator()
    seconds_until(lambda: listed(cluster) != workers(cluster), limit=4)
    assert listed(cluster) == workers(cluster)
    assert written_at(cluster) == before


def written_at(cluster: Cluster) -> dict[str, list[str]]:
    """When the operator last wrote each object, by the API server's own book-keeping."""
    kinds = ",".join(("rewardpool", "pod", *OWNED))
    found = json.loads(cluster.kubectl("get", kinds, "-o", "json", "--show-managed-fields"))["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}": [
            entry["time"]
            for entry in item["metadata"].get("managedFields", [])
            if entry["manager"] == names.FIELD_MANAGER
        ]
        for item in found
    }


def test_an_idle_pool_writes_nothing(cluster: Cluster) -> None:
    cluster.eventually(lambda: is_whole(cluster), seconds=20, what="the pool is whole")
    # The Deployment controller writes once more when the routers count as available.
    cluster.eventually(
        lambda: (cluster.get("deployment", names.router_name(POOL)) or {})["status"].get("availableReplicas") == 1,
        seconds=20,
        what="the routers are available",
    )

    def nobody_writes_for_a_while() -> bool:
        before = writes(cluster)
        seconds_until(lambda: writes(cluster) != before, limit=FIGURES.shortest + 1)
        return writes(cluster) == before

    # What the tests before this one changed may be written as much later as figures are.
    cluster.eventually(nobody_writes_for_a_while, seconds=10, what="nobody writes")
    assert nobody_writes_for_a_while()


_REQUESTS = re.compile(r'^apiserver_request_total\{.*resource="(\w+)".*verb="(\w+)"\} ([\d.e+]+)$', re.MULTILINE)
_LOOKED_AT = {"rewardpools", "deployments", "pods", "services", "secrets", "configmaps", "events"}


def writes(cluster: Cluster) -> dict[str, float]:
    """How often anybody asked the API server to write such objects, by kind and verb."""
    metrics = cluster.plane.kubectl("get", "--raw", "/metrics")
    totals: dict[str, float] = {}
    for resource, verb, count in _REQUESTS.findall(metrics):
        if resource in _LOOKED_AT and verb in {"POST", "PUT", "PATCH", "APPLY", "DELETE"}:
            totals[f"{verb} {resource}"] = totals.get(f"{verb} {resource}", 0) + float(count)
    return totals


@pytest.mark.long  # the end-to-end run changes arguments under load
def test_a_changed_pod_reaches_the_workers_without_a_gap(cluster: Cluster) -> None:
    old = cluster.status(POOL)["currentRevision"]
    engine = {"name": "python", "env": env_vars({"PYTHONPATH": str(FUNCTIONS), "MARK": "changed"})}
    cluster.apply(POOL, replicas=1, engine=engine)
    gaps = []

    def rolled() -> bool:
        gaps.append(listed(cluster) == set())
        return cluster.status(POOL)["currentRevision"] != old and is_whole(cluster)

    cluster.eventually(rolled, seconds=40, what="the new revision serves alone")
    assert not any(gaps)
    # It stays without workers, for a rollback.
    kept = names.worker_name(POOL, old)
    cluster.eventually(
        lambda: cluster.get("deployment", kept)["spec"]["replicas"] == 0,  # type: ignore[index]
        seconds=20,
        what="the old revision has no workers",
    )


def test_what_the_api_server_refuses_is_told_in_its_words(cluster: Cluster) -> None:
    cluster.apply(
        "refused", worker={"gpus": 0, "podTemplate": {"spec": {"containers": [{"name": "worker", "imagine": 1}]}}}
    )
    cluster.eventually(
        lambda: cluster.condition("refused", "Degraded").get("reason") == "ApplyFailed", seconds=10, what="it is told"
    )
    assert "imagine" in cluster.condition("refused", "Degraded")["message"]
    cluster.kubectl("delete", "rewardpool", "refused")


def degraded(cluster: Cluster, pool: str) -> str:
    return str(cluster.condition(pool, "Degraded").get("reason"))


def test_a_null_that_removes_nothing_is_told_until_it_is_gone(cluster: Cluster) -> None:
    def apply(probe: object) -> None:
        template = {"spec": {"containers": [{"name": "worker", "livenessProbe": probe}]}}
        cluster.apply("null", replicas=0, worker={"gpus": 0, "podTemplate": template})

    def probes() -> list[object]:
        deployments = cluster.all("deployment", f"{names.LABEL_POOL}=null,{names.LABEL_COMPONENT}=worker")
        containers = [one["spec"]["template"]["spec"]["containers"][0] for one in deployments]
        return [container.get("livenessProbe") for container in containers]

    apply(None)
    cluster.eventually(lambda: degraded(cluster, "null") == "NullIgnored", seconds=20, what="it is told")
    assert "podTemplate.spec.containers[0].livenessProbe" in cluster.condition("null", "Degraded")["message"]
    assert all(probes())
    apply({"$patch": "delete"})
    cluster.eventually(lambda: degraded(cluster, "null") == "AsExpected", seconds=20, what="it is told no more")
    cluster.eventually(lambda: None in probes(), seconds=20, what="the field is removed")
    cluster.kubectl("delete", "rewardpool", "null")


def test_a_pod_template_that_overrides_rewardpools_own_is_told_by_name_until_it_does_not(cluster: Cluster) -> None:
    def apply(**fields: object) -> None:
        template = {"spec": {"containers": [{"name": "worker", **fields}]}}
        cluster.apply("overrides", replicas=0, worker={"gpus": 0, "podTemplate": template})

    apply(env=env_vars({"VLLM_API_KEY": "x"}))
    cluster.eventually(lambda: degraded(cluster, "overrides") == "InvalidObject", seconds=20, what="it is told")
    message = cluster.condition("overrides", "Degraded")["message"]
    assert "spec.worker.podTemplate.spec.containers[0].env[0].name must not be VLLM_API_KEY" in message
    assert cluster.all("deployment", f"{names.LABEL_POOL}=overrides") == []
    apply(env=env_vars({"VLLM_LOGGING_LEVEL": "DEBUG"}))
    cluster.eventually(lambda: degraded(cluster, "overrides") == "AsExpected", seconds=20, what="it is taken")
    cluster.kubectl("delete", "rewardpool", "overrides")


@pytest.mark.parametrize("labels", [{}, {names.LABEL_POOL: "planted"}], ids=["unlabelled", "labelled"])
def test_a_key_that_somebody_else_made_is_neither_taken_nor_mounted(cluster: Cluster, labels: dict[str, str]) -> None:
    secret = names.key_secret("planted")
    metadata = {"name": secret, "labels": labels}
    planted = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {names.SECRET_KEY: "theirs"}}
    cluster.kubectl("create", "-f", "-", data=json.dumps(planted))
    cluster.apply("planted", replicas=0)
    cluster.eventually(lambda: degraded(cluster, "planted") == "NameTaken", seconds=20, what="it is told")
    assert secret in cluster.condition("planted", "Degraded")["message"]
    assert cluster.all("deployment", f"{names.LABEL_POOL}=planted") == []
    assert key(cluster, secret) == "theirs"
    cluster.kubectl("delete", "secret", secret)
    cluster.eventually(lambda: key(cluster, secret) not in ("", "theirs"), seconds=20, what="it has a key of its own")
    cluster.kubectl("delete", "rewardpool", "planted")
    cluster.eventually(lambda: cluster.get("secret", secret) is None, seconds=20, what="its key goes with it")


def test_a_worker_that_cannot_start_is_told_with_its_last_words(cluster: Cluster) -> None:
    cluster.apply("broken", model={"source": "python://no_such_module:score", "type": "Function"})
    cluster.eventually(
        lambda: cluster.condition("broken", "Degraded").get("reason") == "FunctionNotFound",
        seconds=20,
        what="the condition says so",
    )
    degraded = cluster.condition("broken", "Degraded")
    assert degraded["status"] == "True"
    assert "no_such_module" in degraded["message"]
    assert cluster.condition("broken", "Ready")["status"] == "False"
    cluster.kubectl("delete", "rewardpool", "broken")


@pytest.mark.long  # the end-to-end run ends with that
def test_a_deleted_pool_leaves_nothing(cluster: Cluster) -> None:
    doomed = {"gone-a": "background", "gone-b": "foreground"}
    for name in doomed:
        cluster.apply(name, replicas=1)
    for name in doomed:
        cluster.eventually(lambda name=name: cluster.is_ready(name, replicas=1), seconds=30, what=f"{name} serves")
    for name, cascade in doomed.items():
        cluster.kubectl("delete", "rewardpool", name, f"--cascade={cascade}", "--wait=false")
    kinds = ("rewardpool", "pod", "replicaset", *OWNED)

    def left() -> list[tuple[str, dict[str, Any]]]:
        found = [(kind, item["metadata"]) for kind in kinds for item in cluster.all(kind)]
        return [(kind, metadata) for kind, metadata in found if metadata["name"].startswith("gone-")]

    seconds_until(lambda: not left(), limit=40 * PATIENCE)
    assert left() == []
