"""Two pools alike but for who scales them: the operator by policy QueueDepth, or an HPA by their scale subresource."""

from collections.abc import Mapping
from typing import Any, Final

from support.external_scaling import hpa

from faults import manifests

Manifest = dict[str, Any]

OURS: Final = "ours"
HPA: Final = "hpa"
POOLS: Final = (OURS, HPA)

TARGET: Final = 4
"""Requests in flight that a replica should have."""
STEP: Final = 8
"""The load grows from one times the target to so many times."""
LARGEST: Final = 16
"""Replicas that both may ask for, so that one that asks for more than it needs is seen to."""
SERVICE_SECONDS: Final = 2.0


def pool(name: str, *, namespace: str) -> Manifest:
    """The pool of that name, which begins with one replica."""
    made = manifests.pool(name, in_namespace=namespace, workers=1, routers=1)
    bounds: Manifest = {"minReplicas": 1, "maxReplicas": LARGEST}
    spec = made["spec"]
    spec["engine"]["env"] |= {"SERVICE_SECONDS": str(SERVICE_SECONDS)}
    if name == HPA:
        spec["autoscaling"] = bounds | {"policy": {"type": "External"}}
    else:
        policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": TARGET}}
        spec["autoscaling"] = bounds | {"policy": policy}
        del spec["replicas"]
    return made


def autoscaler(*, namespace: str) -> Manifest:
    """The HPA of its pool, with Kubernetes' own defaults for everything but the target."""
    made = hpa(HPA, target=TARGET, maximum=LARGEST)
    made["metadata"]["namespace"] = namespace
    return made


def everything(*, namespace: str) -> list[Manifest]:
    """The namespace with the engine's program, and both pools."""
    return [*manifests.namespace(namespace), *(pool(name, namespace=namespace) for name in POOLS)]


def chart_values() -> Mapping[str, Any]:
    """Values of the chart: the image that was just built; the load is an administrator's and needs no right."""
    return manifests.chart_values(trainers=[])
