"""Two pools of type Teacher and one of a function, all at zero, and the job's pod."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from faults import manifests
from faults.manifests import ACCOUNT, asking_pod, requests
from installation import IMAGE
from machine import ENGINE_IMAGE, QUICKSTART, environment
from overlay import chart_image, quick_start_on_this_machine
from rewardpool_api import names
from two_teachers.job import GATEWAY, JOB, JUDGE

Manifest = dict[str, Any]

NAMESPACE: Final = "rewardpool-two-teachers"
TEACHERS: Final = ("maths", "code")
POOLS: Final = (*TEACHERS, JUDGE)
PROGRAMS: Final = "teachers-programs"
IDLE_SECONDS: Final = 20
PER_REPLICA: Final = 1000
"""Requests for one more replica, of which there is none: each pool has one at most."""


def namespace() -> list[Manifest]:
    """The namespace, the programs in it, and whom the pod is."""
    metadata = {"name": PROGRAMS, "namespace": NAMESPACE}
    data = {"__init__.py": "", "job.py": (Path(__file__).parent / "job.py").read_text()}
    return [
        *manifests.namespace(NAMESPACE),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}},
    ]


def chart_values() -> Mapping[str, Any]:
    """Values of the chart: the image that was just built, and the job's right to use the pools and to announce."""
    account = {"namespace": NAMESPACE, "name": ACCOUNT}
    trainer = {"namespace": NAMESPACE, "pools": list(POOLS), "jobs": [JOB], "serviceAccounts": [account]}
    return {"image": chart_image(IMAGE), "trainers": [trainer]}


def pools(models: Path) -> list[Manifest]:
    """All three."""
    judge = manifests.pool(JUDGE, in_namespace=NAMESPACE, workers=0, routers=1)
    return [*(teacher(name, models / name) for name in TEACHERS), _at_zero(judge)]


def teacher(name: str, model: Path) -> Manifest:
    """A teacher on vLLM, as the quick start's pool is; one of them has a gateway."""
    quick_start = yaml.safe_load((QUICKSTART / "pool.yaml").read_text())
    made = quick_start_on_this_machine(quick_start, server=environment("server"), image=ENGINE_IMAGE)
    made["metadata"] = {"name": name, "namespace": NAMESPACE}
    made["spec"]["model"] = {"source": f"file://{model}", "type": "Teacher"}
    # vLLM compiles what ranks a prompt's tokens, and the image has no compiler.
    made["spec"]["engine"]["env"].append({"name": "TORCHDYNAMO_DISABLE", "value": "1"})
    router = {"name": "router", "resources": requests(cpu="50m", memory="128Mi")}
    made["spec"]["router"] = {"image": IMAGE, "podTemplate": {"spec": {"containers": [router]}}}
    if name == GATEWAY:
        made["spec"]["gateway"] = {}
    return _at_zero(made)


def _at_zero(pool: Manifest) -> Manifest:
    del pool["spec"]["replicas"]
    pool["spec"]["autoscaling"] = {
        "minReplicas": 0,
        "maxReplicas": 1,
        "policies": [
            {"type": "QueueDepth", "queueDepth": {"targetPerReplica": PER_REPLICA}},
            {"type": "Demand", "demand": {}},
        ],
        "cooldownSeconds": IDLE_SECONDS,
        "scaleDown": {"stabilizationWindowSeconds": 10},
    }
    return pool


def job(folder: Path) -> Manifest:
    """The job's pod; the gateway's key reaches it from the Secret that the operator made."""
    packages = {"faults": manifests.PROGRAMS, "two_teachers": PROGRAMS}
    command = ("two_teachers.job", NAMESPACE, str(folder))
    made = asking_pod(JOB, command, packages, folder, in_namespace=NAMESPACE)
    secret = {"name": names.gateway_name(GATEWAY), "key": names.SECRET_KEY}
    made["spec"]["containers"][0]["env"] += [
        {"name": "GATEWAY_URL", "value": names.gateway_url(GATEWAY, NAMESPACE)},
        {"name": "GATEWAY_KEY", "valueFrom": {"secretKeyRef": secret}},
    ]
    return made
