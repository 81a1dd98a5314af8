"""The pool that serves model a or b on the transformers engine, and the pod that rates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cluster.folders import REPOSITORY
from faults.manifests import ACCOUNT, requests
from installation import IMAGE
from machine import ENGINE_IMAGE, environment
from overlay import GPU_RESOURCE, WORKER_CPU, chart_image, host_folders
from rewardpool_api import names

Manifest = dict[str, Any]

NAMESPACE: Final = "rewardpool-two-models"
POOL: Final = "changing"
RATER: Final = "rater"


def namespace() -> list[Manifest]:
    """Return the namespace, and the account of its pod."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}},
    ]


def chart_values() -> Mapping[str, Any]:
    """Return the chart's values: the image that was just built, and the pod's right to use the pool."""
    account = {"namespace": NAMESPACE, "name": ACCOUNT}
    trainer = {"namespace": NAMESPACE, "pools": [POOL], "serviceAccounts": [account]}
    return {"image": chart_image(IMAGE), "trainers": [trainer]}


def source(folder: Path, model: str) -> str:
    """Return where a model is, as the manifest says it."""
    return f"file://{folder / model}"


def pool(folder: Path, *, replicas: int) -> Manifest:
    """Return the pool that serves model a."""
    server = environment("server")
    volumes, mounts = host_folders(server.folders)
    worker = {"name": "worker", "volumeMounts": mounts, "resources": {"requests": {"cpu": WORKER_CPU}}}
    router = {"name": "router", "resources": requests(cpu="50m", memory="128Mi")}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": POOL, "namespace": NAMESPACE},
        "spec": {
            "model": {"source": source(folder, "a")},
            "engine": {
                "name": "transformers",
                "dtype": "float32",
                "image": ENGINE_IMAGE,
                "env": [{"name": "PATH", "value": server.search_path}, {"name": "HF_HUB_OFFLINE", "value": "1"}],
            },
            "worker": {
                "gpus": 1,
                "gpuResource": GPU_RESOURCE,
                "podTemplate": {"spec": {"volumes": volumes, "containers": [worker]}},
            },
            "router": {"image": IMAGE, "podTemplate": {"spec": {"containers": [router]}}},
            "replicas": replicas,
        },
    }


def rater(folder: Path, out: Path) -> Manifest:
    """Return the pod that rates, in the trainer's environment, which has the tokenizers' library."""
    trainer = environment("trainer")
    volumes, mounts = host_folders([*trainer.folders, REPOSITORY, folder])
    writable, write_mounts = host_folders([out], read_only=False)
    container = {
        "name": RATER,
        "image": ENGINE_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "two_models.rating", f"{NAMESPACE}/{POOL}", str(out)],
        "env": [
            {"name": "PATH", "value": trainer.search_path},
            {"name": "PYTHONPATH", "value": str(REPOSITORY / "e2e")},
            {"name": "HF_HUB_OFFLINE", "value": "1"},
        ],
        "volumeMounts": [*mounts, *write_mounts],
    }
    spec = {
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 130,
        "containers": [container],
        "volumes": [*volumes, *writable],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": RATER, "namespace": NAMESPACE}, "spec": spec}
