"""Workers of large models, as a real API server takes them: what the pod template adds is there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.kube_builders import a_pool

from cluster.control_plane import ControlPlane
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.manifests.diff import differs

pytestmark = pytest.mark.real

NAMESPACE = "rl"
LARGE = {
    "model": {"source": "hf://org/large", "cache": {"claimName": "models"}, "tokenSecretRef": {"name": "hf"}},
    "engine": {"tensorParallelSize": 8},
    "worker": {
        "gpus": 8,
        "podTemplate": {
            "spec": {
                "nodeSelector": {"gpu": "h200"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "affinity": {"podAntiAffinity": {}},
                "priorityClassName": "high",
                "serviceAccountName": "reads-models",
                "initContainers": [{"name": "download", "resources": {"limits": {"memory": "4Gi"}}}],
                "volumes": [
                    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
                    {"name": "scratch", "emptyDir": {}},
                ],
                "containers": [{"name": "worker", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
            }
        },
    },
}


@pytest.fixture(scope="module", autouse=True)
def namespace(control_plane: ControlPlane) -> Iterator[None]:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    yield
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def deployment(**spec: Any) -> dict[str, Any]:
    pool = a_pool(**spec)
    return render.worker_deployment(pool, render.worker_revision(pool, image="own:1"), replicas=1)


def kept(control_plane: ControlPlane, manifest: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server would keep it."""
    answer = control_plane.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-"),
        input=json.dumps(manifest),
    )
    found: dict[str, Any] = json.loads(answer)
    return found


def taken(control_plane: ControlPlane, **spec: Any) -> dict[str, Any]:
    """The pod's spec as the API server would keep it."""
    pod: dict[str, Any] = kept(control_plane, deployment(**spec))["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("source", ["hf://org/rm", "s3://models/rm", "pvc://claim/rm", "file:///models/rm"])
def test_what_the_api_server_fills_in_is_no_difference(control_plane: ControlPlane, source: str) -> None:
    manifest = deployment(model={"source": source})
    assert not differs(manifest, kept(control_plane, manifest))


def test_what_the_api_server_fills_in_for_adapters_is_no_difference(control_plane: ControlPlane) -> None:
    adapters = [
        {"name": "safe", "source": "hf://org/safe", "revision": "a" * 40},
        {"name": "brief", "source": "pvc://claim/brief"},
        {"name": "local", "source": "file:///models/local"},
    ]
    for source in ("hf://org/rm", "pvc://claim/rm"):
        manifest = deployment(model={"source": source, "adapters": adapters})
        assert not differs(manifest, kept(control_plane, manifest))


def test_a_large_model_gets_all_that_its_pod_template_says(control_plane: ControlPlane) -> None:
    pod = taken(control_plane, **LARGE)
    (worker,), (download,) = pod["containers"], pod["initContainers"]
    assert worker["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert worker["command"][worker["command"].index("--tensor-parallel-size") + 1] == "8"
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}} in pod["volumes"]
    assert {"mountPath": "/scratch", "name": "scratch"} in worker["volumeMounts"]
    assert download["resources"] == {"limits": {"memory": "4Gi"}}
    assert (pod["nodeSelector"], pod["tolerations"][0]["key"]) == ({"gpu": "h200"}, "nvidia.com/gpu")
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("reads-models", "high")


@pytest.mark.parametrize("resource", ["nvidia.com/mig-3g.40gb", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi"])
def test_gpus_may_be_anybodys(control_plane: ControlPlane, resource: str) -> None:
    (worker,) = taken(control_plane, worker={"gpus": 2, "gpuResource": resource})["containers"]
    assert worker["resources"]["limits"] == {resource: "2"}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
def test_a_bucket_is_read_with_its_secret(control_plane: ControlPlane, engine: str) -> None:
    model = {"source": "s3://models/team/rm", "credentialsSecretRef": {"name": "s3"}}
    (download,) = taken(control_plane, model=model, engine={"name": engine})["initContainers"]
    assert download["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert download["env"][-1]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['rewardpool.dev/revision']"
