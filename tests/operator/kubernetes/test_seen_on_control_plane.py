"""What people see of an operator at work, and what they ask of it by the command line.

A real API server, routers and function workers, and kubectl with the plugin; only the node is a stand-in. One pool goes
through the stories in the order of the file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.operator_cluster import NAMESPACE, Cluster

from cluster import binaries
from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "seen"
SERIES = {"namespace": NAMESPACE, "pool": POOL}


@pytest.fixture(scope="module", autouse=True)
def pool(cluster: Cluster) -> None:
    cluster.apply(POOL, replicas=1, rollout={"progressDeadlineSeconds": 20})
    cluster.eventually(lambda: cluster.is_ready(POOL, replicas=1), seconds=60, what="the pool is ready")


def plugin(cluster: Cluster, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `kubectl rewardpool …`."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "KUBECONFIG": str(cluster.plane.kubeconfig), "PATH": path}
    command = [str(binaries.ensure("kubectl")["kubectl"]), "rewardpool", *arguments, "-n", NAMESPACE]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def events(cluster: Cluster) -> list[dict[str, Any]]:
    found = json.loads(cluster.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
    return [event for event in found if event["regarding"]["name"] == POOL]


def revision(cluster: Cluster) -> str:
    return str(cluster.status(POOL)["currentRevision"])


def test_prometheus_is_told_of_the_pool(cluster: Cluster) -> None:
    ready = lambda: cluster.metric("rewardpool_pool_replicas", **SERIES, state="ready")  # noqa: E731
    # A pass writes the status first, which the pool was waited for by.
    cluster.eventually(lambda: ready() == 1, seconds=10, what="the replica is counted")
    assert cluster.metric("rewardpool_pool_condition", **SERIES, type="Serving") == 1
    assert cluster.metric("rewardpool_leader") == 1
    assert (cluster.metric("rewardpool_kube_requests_total", verb="create", code="201") or 0) > 0


def test_a_pool_that_is_right_explains_nothing_but_its_size(cluster: Cluster) -> None:
    code, out, _ = plugin(cluster, "explain", POOL, "--json")
    assert code == 0
    assert [item["cause"] for item in json.loads(out)["explanations"]] == ["Size"]


def test_status_shows_worker_and_router(cluster: Cluster) -> None:
    _, out, _ = plugin(cluster, "status", POOL)
    phases = {line.split()[1]: line.split()[2] for line in out.splitlines() if line.startswith(f"{POOL}-")}
    assert phases == {"worker": "Ready", "router": "Ready"}


def test_scale_waits_until_the_replicas_serve(cluster: Cluster) -> None:
    code, out, err = plugin(cluster, "scale", POOL, "2")
    assert code == 0, err
    assert f"{NAMESPACE}/{POOL}: 2 replicas" in out
    assert cluster.is_ready(POOL, replicas=2)
    assert cluster.metric("rewardpool_pool_scaling_changes_total", **SERIES, direction="up") == 1


def test_restart_waits_until_every_worker_is_a_new_one(cluster: Cluster) -> None:
    before = {pod["metadata"]["name"] for pod in cluster.pods(POOL, "worker")}
    code, _, err = plugin(cluster, "restart", POOL)
    assert code == 0, err
    after = {
        pod["metadata"]["name"] for pod in cluster.pods(POOL, "worker") if "deletionTimestamp" not in pod["metadata"]
    }
    assert len(after) == 2
    assert not before & after


def test_a_revision_that_fails_is_explained_and_taken_back(cluster: Cluster) -> None:
    good = revision(cluster)
    patch = {"spec": {"model": {"source": "python://no_such_module:compute_score"}}}
    cluster.kubectl("patch", "rewardpool", POOL, "--type=merge", "-p", json.dumps(patch))
    failed = lambda: cluster.status(POOL).get("rollout", {}).get("failed")  # noqa: E731
    cluster.eventually(failed, seconds=90, what="the revision has failed")
    _, out, _ = plugin(cluster, "explain", POOL, "--json")
    causes = {item["cause"]: item for item in json.loads(out)["explanations"]}
    assert causes["RolledBack"]["what"].endswith(f"revision {good} serves instead")
    code, _, err = plugin(cluster, "rollback", POOL)
    assert code == 0, err
    found = cluster.get("rewardpool", POOL) or {}
    assert found["spec"]["model"]["source"] == "python://reward_functions:compute_score"
    assert revision(cluster) == good
    assert cluster.metric("rewardpool_pool_rollouts_total", **SERIES, outcome="rolled_back") == 1


def test_events_tell_each_thing_once(cluster: Cluster) -> None:
    told = [(event["reason"], event["note"]) for event in events(cluster)]
    assert {"Scaled", "RolloutStarted", "RolloutCompleted", "RolledBack"} <= {reason for reason, _ in told}
    assert len(told) == len(set(told))


def test_a_pool_that_is_gone_has_no_series(cluster: Cluster) -> None:
    cluster.kubectl("delete", "rewardpool", POOL)
    left = lambda: [sample for sample in cluster.samples() if sample.labels.get("pool") == POOL]  # noqa: E731
    cluster.eventually(lambda: not left(), seconds=30, what="its series are gone")
    assert names.LABEL_POOL not in str(cluster.samples())
