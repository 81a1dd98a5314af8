"""The objects of these tests: the pool under load, the files it and the traffic run, and the traffic's pod."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from installation import IMAGE
from overlay import chart_image
from rewardpool_api import names

Manifest = dict[str, Any]

NAMESPACE = "rewardpool-faults"
POOL = "faults"
ACCOUNT = "trainer"
TRAFFIC = "traffic"
PROGRAMS = "programs"
"""ConfigMap with the modules that pods run."""
PROGRAMS_DIR = "/opt/faults"
GPU_RESOURCE = "faults.rewardpool.dev/gpu"
"""A resource of our own, so that neither a real GPU nor another test's faked one is in the way."""

_HERE = Path(__file__).parent


def namespace(name: str) -> list[Manifest]:
    """A namespace with the programs in it."""
    modules = {f"{module}.py": (_HERE / f"{module}.py").read_text() for module in ("reward", "traffic")}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PROGRAMS, "namespace": name},
            "data": {"__init__.py": "", **modules},
        },
    ]


def pool(name: str = POOL, *, in_namespace: str = NAMESPACE, workers: int, routers: int) -> Manifest:
    """A pool of functions on RewardPool's own image, small enough for many of its pods on two cores."""
    program_mount = {"name": PROGRAMS, "mountPath": f"{PROGRAMS_DIR}/faults", "readOnly": True}
    worker = {"name": "worker", "volumeMounts": [program_mount], "resources": requests(cpu="50m", memory="64Mi")}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": in_namespace},
        "spec": {
            "model": {"source": "python://faults.reward:compute_score"},
            "engine": {
                # Named here, because an upgraded operator would bring another default.
                "image": IMAGE,
                "env": [{"name": "PYTHONPATH", "value": PROGRAMS_DIR}],
            },
            "sandbox": {"concurrency": 64},
            "worker": {
                "drainSeconds": 20,
                "podTemplate": {
                    "spec": {
                        "containers": [worker],
                        "volumes": [{"name": PROGRAMS, "configMap": {"name": PROGRAMS}}],
                    }
                },
            },
            "router": {
                "replicas": routers,
                "image": IMAGE,
                "requestTimeoutSeconds": 30,
                "podTemplate": {
                    "spec": {"containers": [{"name": "router", "resources": requests(cpu="50m", memory="128Mi")}]}
                },
            },
            "replicas": workers,
            "rollout": {"progressDeadlineSeconds": 30},
        },
    }


def traffic(folder: Path, *, node: str, rate: float, in_namespace: str = NAMESPACE) -> list[Manifest]:
    """The traffic's ServiceAccount and pod; `node` is where it stays while others are drained."""
    command = ("faults.traffic", f"{in_namespace}/{POOL}", str(folder), f"--rate={rate:g}")
    pod = asking_pod(TRAFFIC, command, {"faults": PROGRAMS}, folder, in_namespace=in_namespace, cpu="100m", ends_in=5)
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    account = {"name": ACCOUNT, "namespace": in_namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        pod,
    ]


def asking_pod(
    name: str,
    command: Sequence[str],
    packages: Mapping[str, str],
    folder: Path,
    *,
    in_namespace: str,
    cpu: str = "50m",
    ends_in: int = 60,
) -> Manifest:
    """A pod that asks a pool, as a trainer with the right to.

    Args:
        name: of pod and container.
        command: the module that runs, and its arguments.
        packages: mounted for it: name of each, and of the ConfigMap with its files.
        folder: of the node, where it writes.
        in_namespace: of the pod.
        cpu: that is requested.
        ends_in: seconds that it has to end.
    """
    mounts = [
        {"name": one, "mountPath": f"{PROGRAMS_DIR}/{package}", "readOnly": True} for package, one in packages.items()
    ]
    container = {
        "name": name,
        "image": IMAGE,
        "command": ["python3", "-m", *command],
        "env": [{"name": "PYTHONPATH", "value": PROGRAMS_DIR}],
        "volumeMounts": [*mounts, {"name": "out", "mountPath": str(folder)}],
        "resources": requests(cpu=cpu, memory="64Mi"),
    }
    spec = {
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": ends_in,
        "containers": [container],
        "volumes": [
            *({"name": files, "configMap": {"name": files}} for files in packages.values()),
            {"name": "out", "hostPath": {"path": str(folder), "type": "Directory"}},
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": in_namespace}, "spec": spec}


def chart_values(*, in_namespace: str = NAMESPACE, **further: Any) -> Mapping[str, Any]:
    """Values of the chart: the image that was just built, and the traffic's right to use the pool."""
    account = {"namespace": in_namespace, "name": ACCOUNT}
    return {
        "image": chart_image(IMAGE),
        "trainers": [{"namespace": in_namespace, "pools": [POOL], "serviceAccounts": [account]}],
        **further,
    }


def requests(*, cpu: str, memory: str) -> Manifest:
    """Resource requests of a container."""
    return {"requests": {"cpu": cpu, "memory": memory}}
