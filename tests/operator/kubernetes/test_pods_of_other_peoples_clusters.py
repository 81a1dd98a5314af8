"""What a real API server says of rendered pods where other people have quotas, and what clients make of removals."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.kube_builders import a_pool

from cluster.control_plane import ControlPlane
from cluster.processes import ClusterError
from rewardpool_api import RewardPool, names
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.manifests.nulls import ignored_nulls

pytestmark = pytest.mark.real

NAMESPACE = "others"
AMOUNTS = {"cpu": 4, "memory": "16Gi"}
POOL = {
    "model": {"source": "hf://org/model", "adapters": [{"name": "a", "source": "hf://o/a", "revision": "a" * 40}]},
    "worker": {"gpus": 0, "resources": {"requests": AMOUNTS, "limits": AMOUNTS}},
}


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """With a namespace that has a quota of requests and limits."""
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=30s")
    hard = "limits.cpu=100,limits.memory=1000Gi,requests.cpu=100,requests.memory=1000Gi"
    control_plane.kubectl("create", "quota", "all", f"--hard={hard}", "-n", NAMESPACE)
    control_plane.kubectl("wait", "--for=jsonpath={.status.used}", "quota/all", "-n", NAMESPACE, "--timeout=30s")
    yield control_plane
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def refusal(plane: ControlPlane, template: dict[str, Any]) -> str | None:
    """Why the namespace does not take such a pod; None when it does."""
    metadata = {"name": "p", "namespace": NAMESPACE}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    try:
        plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    except ClusterError as error:
        return str(error)
    return None


def test_a_quota_of_limits_takes_pods_whose_user_says_what_the_worker_takes(plane: ControlPlane) -> None:
    assert refusal(plane, render.worker_template(a_pool(**POOL), image="own:1")) is None


def test_a_quota_of_limits_takes_routers(plane: ControlPlane) -> None:
    deployment = render.router_deployment(a_pool(**POOL), fingerprint="f", image="own:1")
    assert refusal(plane, deployment["spec"]["template"]) is None


def manifest(name: str, removal: Any) -> str:
    template = {"spec": {"containers": [{"name": "worker", "livenessProbe": removal}]}}
    return json.dumps(
        {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"model": {"source": "hf://a/b"}, "worker": {"podTemplate": template}},
        }
    )


CLIENTS = {
    "apply": [["apply"]],
    "apply again": [["apply"], ["apply"]],
    "create": [["create"]],
    "create and apply": [["create"], ["apply"]],
    "create and replace": [["create"], ["replace"]],
    "server-side": [["apply", "--server-side"]],
}


def stored(plane: ControlPlane, calls: list[list[str]], removal: Any) -> RewardPool:
    name = f"p-{'-'.join(word.strip('-') for call in calls for word in call)}-{'null' if removal is None else 'patch'}"
    for call in calls:
        plane.kubectl(*call, "-f", "-", input=manifest(name, removal))
    found = plane.read(f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/rewardpools/{name}")
    return RewardPool.model_validate(found)


def workers(pool: RewardPool) -> dict[str, Any]:
    return render.worker_template(pool, image="own:1")


@pytest.mark.parametrize("calls", CLIENTS.values(), ids=CLIENTS)
def test_a_removal_reaches_the_pods_by_every_client(plane: ControlPlane, calls: list[list[str]]) -> None:
    pool = stored(plane, calls, {"$patch": "delete"})
    assert "livenessProbe" not in workers(pool)["spec"]["containers"][0]
    assert ignored_nulls(pool, workers) is None


@pytest.mark.parametrize("calls", CLIENTS.values(), ids=CLIENTS)
def test_a_null_makes_the_same_pods_by_every_client_and_is_named(plane: ControlPlane, calls: list[list[str]]) -> None:
    pool = stored(plane, calls, None)
    assert "livenessProbe" in workers(pool)["spec"]["containers"][0]
    assert "podTemplate.spec.containers[0].livenessProbe" in (ignored_nulls(pool, workers) or "")
