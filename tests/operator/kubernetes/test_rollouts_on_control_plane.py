"""Rollouts that go wrong and are put right, on a real API server with real routers and function workers.

Only the node is a stand-in (`support.loopback_kubelet`). One pool goes through the stories, each of which leaves it
serving; a trainer scores all the while, and no request of it fails.
"""

import base64
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from support.env_vars import env_vars
from support.operator_cluster import FUNCTIONS, Cluster, seconds_until
from support.processes import http
from support.reward_functions import expected_score
from support.stand_in_service import takes_connections

from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "roll"
GOOD = {"source": "python://reward_functions:compute_score", "type": "Function"}
BROKEN = {"source": "python://no_such_module:compute_score", "type": "Function"}
OTHER = {"source": "python://reward_functions:compute_other_score", "type": "Function"}
ROLLOUT = {"strategy": "Surge", "progressDeadlineSeconds": 20}
PARITY = {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.05}
CHANGE_SECONDS = 60
"""For one rollout, on a machine that is busy with other tests."""


def sample(text: str) -> str:
    return json.dumps({"data_source": "test", "solution_str": text, "ground_truth": "4", "extra_info": {}})


GOLDEN_LINES = "".join(json.dumps({"text": sample(text)}) + "\n" for text in ("three", "four", "five"))


class Rolling:
    """The pool under test, in the words of these stories."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.spec: dict[str, Any] = {"model": GOOD, "replicas": 1, "rollout": ROLLOUT}

    def apply(self, *, mark: int = 10, **spec: Any) -> None:
        """Change the pool; another mark is another revision that serves as well."""
        env = {"PYTHONPATH": str(FUNCTIONS), "MARK": str(mark)}
        self.spec |= {"engine": {"name": "python", "env": env_vars(env)}, **spec}
        self.cluster.apply(POOL, **self.spec)

    @property
    def status(self) -> dict[str, Any]:
        return self.cluster.status(POOL)

    @property
    def rollout(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status.get("rollout", {})
        return found

    def reason(self, kind: str = "Progressing") -> str | None:
        return self.cluster.condition(POOL, kind).get("reason")

    def message(self, kind: str) -> str:
        return str(self.cluster.condition(POOL, kind).get("message"))

    def deployments(self) -> dict[str, dict[str, Any]]:
        """Worker Deployments by revision."""
        selector = f"{names.LABEL_POOL}={POOL},{names.LABEL_REVISION}"
        found = self.cluster.all("deployment", selector)
        return {item["metadata"]["labels"][names.LABEL_REVISION]: item for item in found}

    def sizes(self) -> dict[str, int]:
        return {revision: item["spec"]["replicas"] for revision, item in self.deployments().items()}

    def evictable_workers(self) -> int:
        """How many workers a node's drain may take at this moment, by Kubernetes."""
        allowed: int = self.cluster.get("pdb", f"{POOL}-worker")["status"]["disruptionsAllowed"]
        return allowed

    def serves(self, *, replicas: int = 1) -> bool:
        """Whether the present revision serves alone and is the good one."""
        status = self.status
        good = status.get("rollout", {}).get("stableRevision") == status.get("currentRevision")
        return good and self.cluster.is_ready(POOL, replicas=replicas)

    def eventually(self, holds: Any, what: str, *, seconds: float = CHANGE_SECONDS) -> None:
        self.cluster.eventually(holds, seconds=seconds, what=what)

    def key(self, secret: str) -> str:
        found = self.cluster.get("secret", secret)
        return base64.b64decode(found["data"][names.SECRET_KEY]).decode() if found else ""

    @property
    def router_url(self) -> str:
        (pod,) = self.cluster.pods(POOL, "router")
        return f"http://{pod['status']['podIP']}:{names.ROUTER_PORT}"

    def listed(self) -> set[str]:
        """Addresses in the router's worker list."""
        admin = self.key(names.admin_secret(POOL))
        _, _, answer = http("GET", f"{self.router_url}/workers", key=admin)
        return {worker["url"] for worker in answer["workers"]}

    @contextmanager
    def scoring(self) -> Iterator[list[tuple[int, float | None]]]:
        """Status and score of a trainer's requests, one after the other."""
        outcomes: list[tuple[int, float | None]] = []
        done = threading.Event()
        url, key = self.router_url, self.key(names.key_secret(POOL))

        def ask() -> None:
            while not done.is_set():
                request = {"model": POOL, "input": sample("four")}
                status, _, answer = http("POST", f"{url}/v1/embeddings", request, key=key)
                outcomes.append((status, answer["data"][0]["embedding"][0] if status == 200 else None))
                done.wait(0.05)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield outcomes
        finally:
            done.set()
            asking.join(timeout=30)


@pytest.fixture(scope="module")
def rolling(cluster: Cluster) -> Rolling:
    pool = Rolling(cluster)
    pool.apply()
    pool.eventually(pool.serves, "the pool serves")
    return pool


@pytest.fixture(autouse=True)
def no_request_fails(rolling: Rolling) -> Iterator[None]:
    """Every story is told under traffic: each request is answered with the right score."""
    with rolling.scoring() as outcomes:
        yield
    assert len(outcomes) > 5
    assert {status for status, _ in outcomes} == {200}
    assert [score for _, score in outcomes] == pytest.approx([expected_score("four")] * len(outcomes))


def test_a_broken_revision_is_rolled_back_with_its_last_words(rolling: Rolling) -> None:
    good = rolling.status["currentRevision"]
    rolling.apply(model=BROKEN)
    rolling.eventually(lambda: rolling.reason() == "RolledBack", "the good revision is brought back")
    failed = rolling.rollout["failed"]["revision"]
    assert failed == rolling.status["currentRevision"] != good
    assert "no_such_module" in rolling.message("Degraded")
    rolling.eventually(lambda: rolling.sizes() == {good: 1, failed: 0}, "only the good revision has workers")
    assert "RolledBack" in rolling.cluster.kubectl("describe", "rewardpool", POOL)


def test_a_restarted_operator_does_not_try_the_failed_revision_again(rolling: Rolling) -> None:
    failed = rolling.rollout["failed"]
    sizes = rolling.sizes()
    rolling.cluster.stop_operator()
    rolling.cluster.start_operator()
    seconds_until(lambda: rolling.sizes() != sizes, limit=5)
    assert rolling.sizes() == sizes
    assert rolling.rollout["failed"] == failed


def test_the_fix_goes_through_after_a_failure(rolling: Rolling) -> None:
    good, failed = rolling.rollout["stableRevision"], rolling.status["currentRevision"]
    rolling.apply(model=GOOD, mark=11)
    rolling.eventually(rolling.serves, "the fix serves")
    fix = rolling.status["currentRevision"]
    assert fix not in (good, failed)
    rolling.eventually(
        lambda: rolling.sizes() == {fix: 1, good: 0}, "the good one before is kept, the failed one is not"
    )
    assert rolling.rollout["previousRevision"] == good
    parts = json.loads(rolling.deployments()[good]["metadata"]["annotations"][names.ANNOTATION_SPEC])
    assert {"name": "MARK", "value": "10"} in parts["engine"]["env"]


def test_a_paused_pool_is_scaled_and_not_rolled(rolling: Rolling) -> None:
    good = rolling.rollout["stableRevision"]
    rolling.apply(rollout={**ROLLOUT, "paused": True}, mark=12, replicas=2)
    rolling.eventually(lambda: rolling.reason() == "Paused", "it is said to be paused")
    rolling.eventually(lambda: rolling.sizes()[good] == rolling.status["readyReplicas"] == 2, "two old workers serve")
    assert rolling.sizes()[rolling.status["currentRevision"]] == 0
    rolling.apply(rollout=ROLLOUT, mark=12, replicas=1)
    rolling.eventually(rolling.serves, "unpaused, it goes on")


def test_a_revision_that_scores_otherwise_is_in_no_router_and_rolled_back(rolling: Rolling) -> None:
    rolling.cluster.kubectl("create", "configmap", "golden", f"--from-literal=golden.jsonl={GOLDEN_LINES}")
    good = rolling.rollout["stableRevision"]
    rolling.apply(rollout={**ROLLOUT, "parity": PARITY}, mark=12)
    rolling.eventually(
        lambda: names.ANNOTATION_GOLDEN_SCORES in rolling.deployments()[good]["metadata"]["annotations"],
        "the good revision has scored the golden set",
    )
    before = rolling.listed()
    rolling.apply(model=OTHER, mark=12)
    seen: list[set[str]] = []

    def is_rolled_back() -> bool:
        seen.append(rolling.listed())
        return rolling.reason() == "RolledBack"

    rolling.eventually(is_rolled_back, "it is rolled back")
    assert rolling.reason("Degraded") == "ParityExceeded"
    assert "3 of 3 golden texts differ by more than 0.05; the largest difference is 0.5" in rolling.message("Degraded")
    assert set.union(*seen) == before
    assert "ParityExceeded" in rolling.cluster.kubectl("describe", "rewardpool", POOL)


def test_a_malformed_golden_set_holds_the_rollout_until_it_is_mended(rolling: Rolling) -> None:
    good = rolling.rollout["stableRevision"]
    patch = {"data": {"golden.jsonl": "no JSON"}}
    rolling.cluster.kubectl("patch", "configmap", "golden", "--type=merge", "-p", json.dumps(patch))
    rolling.apply(model=GOOD, mark=13)
    rolling.eventually(lambda: rolling.reason() == "GoldenSetUnusable", "the rollout is held")
    assert "entry golden.jsonl of ConfigMap golden" in rolling.message("Progressing")
    assert "line 1 is not JSON" in rolling.message("Degraded")
    assert rolling.sizes()[good] == 1
    patch = {"data": {"golden.jsonl": GOLDEN_LINES}}
    rolling.cluster.kubectl("patch", "configmap", "golden", "--type=merge", "-p", json.dumps(patch))
    rolling.eventually(rolling.serves, "the rollout goes on")
    assert rolling.rollout["parity"]["outcome"] == "Passed"


@pytest.mark.long
def test_under_a_quota_without_room_auto_replaces_one_by_one_and_is_not_rolled_back(rolling: Rolling) -> None:
    rolling.apply(replicas=2, mark=13)
    rolling.eventually(lambda: rolling.serves(replicas=2), "two workers serve")
    there = len(rolling.cluster.pods(POOL, "worker")) + len(rolling.cluster.pods(POOL, "router"))
    rolling.cluster.kubectl("create", "quota", "tight", f"--hard=pods={there}")
    try:
        rolling.apply(rollout={"strategy": "Auto", "progressDeadlineSeconds": 20}, mark=14)
        rolling.eventually(lambda: rolling.reason() == "ReplacingForLackOfRoom", "the quota is taken for want of room")
        assert "exceeded quota: tight" in rolling.message("Progressing")
        rolling.eventually(lambda: rolling.serves(replicas=2), "the rollout is complete")
        assert rolling.rollout.get("failed") is None
        rolling.apply(replicas=3, mark=14)
        rolling.eventually(
            lambda: 3 in rolling.sizes().values(), "three workers are wanted, for which there is no room"
        )
        seconds_until(lambda: rolling.evictable_workers() != 1, limit=3)
        assert rolling.evictable_workers() == 1
        rolling.apply(replicas=2, mark=14)
        rolling.eventually(lambda: rolling.serves(replicas=2), "two workers serve")
    finally:
        rolling.cluster.kubectl("delete", "quota", "tight")
        rolling.apply(rollout=ROLLOUT)


class WorkerPod:
    """One of two workers that serve, and what Kubernetes says of its pod."""

    def __init__(self, rolling: Rolling) -> None:
        rolling.apply(replicas=2, mark=13)
        self._rolling = rolling
        rolling.eventually(lambda: rolling.serves(replicas=2) and len(self._pods()) == 2, "two workers serve alone")
        self.pod = self._pods()[0]
        self.url = f"http://{self.pod['status']['podIP']}:{names.WORKER_PORT}"

    def _pods(self) -> list[dict[str, Any]]:
        """All workers; none while one of them is not ready, or of the revision before."""
        pods, revision = self._rolling.cluster.pods(POOL, "worker"), self._rolling.status["currentRevision"]
        alone = all(pod["metadata"]["labels"][names.LABEL_REVISION] == revision for pod in pods)
        return pods if alone and all(map(takes_connections, pods)) else []

    def say(self, **condition: str) -> None:
        # A disruption of no time counts as a stale one, and is taken back by Kubernetes' own controller.
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        patch = json.dumps({"status": {"conditions": [{**condition, "lastTransitionTime": now}]}})
        self._rolling.cluster.kubectl("patch", "pod", self.pod["metadata"]["name"], "--subresource=status", "-p", patch)

    def is_listed(self) -> bool:
        return self.url in self._rolling.listed()


def test_a_worker_leaves_the_router_while_it_is_announced_to_be_preempted(rolling: Rolling) -> None:
    worker = WorkerPod(rolling)
    worker.say(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message="preempted")
    rolling.eventually(lambda: not worker.is_listed(), "it left the router", seconds=5)
    rolling.eventually(lambda: rolling.status["readyReplicas"] == 1, "it does not count", seconds=5)
    worker.say(type="DisruptionTarget", status="False")
    rolling.eventually(worker.is_listed, "it is back", seconds=5)


def test_a_worker_of_a_silent_node_stays_while_routers_reach_it_and_leaves_when_they_do_not(rolling: Rolling) -> None:
    worker = WorkerPod(rolling)
    pid = rolling.cluster.kubelet.pid(worker.pod)
    worker.say(type="Ready", status="False")
    rolling.eventually(lambda: _is_silent(rolling, worker), "the API server says so", seconds=5)
    assert worker.is_listed()
    os.kill(pid, signal.SIGSTOP)
    try:
        rolling.eventually(lambda: not worker.is_listed(), "it left the router", seconds=20)
    finally:
        os.kill(pid, signal.SIGCONT)
    worker.say(type="Ready", status="True")
    rolling.eventually(worker.is_listed, "it is back", seconds=10)


def _is_silent(rolling: Rolling, worker: WorkerPod) -> bool:
    pod = rolling.cluster.get("pod", worker.pod["metadata"]["name"]) or {}
    return any((one["type"], one["status"]) == ("Ready", "False") for one in pod["status"]["conditions"])
