"""Needs of a replica's pod."""

import re
from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from rewardpool_api.inference import INFERRED
from rewardpool_api.pod_template import WorkerTemplate
from rewardpool_api.quantities import Seconds
from rewardpool_api.rules import ApiModel, Rule

ResourceName = Annotated[
    str, Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
]


QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""What Kubernetes takes as a quantity."""
MAX_QUANTITY: Final = 32
"""Characters of one; rules over quantities cost the API server by the length that is possible."""


def _quantity(value: object) -> object:
    # A union's own errors name a branch of it as if it were a field.
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("int_or_string_type", "must be an integer or a string")
    if isinstance(value, str) and re.fullmatch(QUANTITY_PATTERN, value) is None:
        raise PydanticCustomError("string_pattern_mismatch", "must be a quantity", {"pattern": QUANTITY_PATTERN})
    if len(str(value)) > MAX_QUANTITY:
        raise PydanticCustomError("string_too_long", "must have at most {max} characters", {"max": MAX_QUANTITY})
    return value


Quantity = Annotated[
    int | str,
    BeforeValidator(_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN, "maxLength": MAX_QUANTITY}),
]
Quantities = Annotated[dict[str, Quantity], Field(max_length=16)]
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$")]
Labels = Annotated[dict[str, LabelValue], Field(max_length=32)]
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)]


class ResourceRequirements(ApiModel):
    """Resources of a replica's container, as in a Pod; GPUs are counted by `gpus`."""

    requests: Quantities = {}
    """Resources by name that a node must have free for the replica, such as {cpu: 4, memory: 32Gi}."""
    limits: Quantities = {}
    """Resources by name that the replica may not exceed, such as {memory: 48Gi}."""


class WorkerSpec(ApiModel):
    """Needs of a replica's pod."""

    gpus: Annotated[int, Field(ge=0, le=64), INFERRED] = 1
    """GPUs per replica; 0 for CPU engines. Default: 0 for a `python://` source, 1 for any other. On one machine without Kubernetes each replica gets NVIDIA GPUs of its own by CUDA_VISIBLE_DEVICES, and with 0 all see the same."""
    gpu_resource: ResourceName = "nvidia.com/gpu"
    """Resource name the GPUs are requested by (MIG slices and other vendors have their own)."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory and other resources of the replica's container, as in a Pod. Set GPUs in `gpus`. In a cluster only."""
    labels: Labels = {}
    """Labels of the replicas' pods and of their Deployments, such as a queue's name or a cost centre. A change makes a new revision, since queues and schedulers read them when a pod is created."""
    annotations: Annotations = {}
    """Annotations of the replicas' pods and of their Deployments. A change makes a new revision."""
    drain_seconds: Seconds = 60
    """Seconds that a replica may take to finish its requests in flight before it is stopped."""
    pod_template: WorkerTemplate = {}
    """Merged over the rendered pod template: nodeSelector, tolerations, volumes, priorityClassName …; containers merge by name (`worker`)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.resources) || !((has(self.resources.requests) && self.gpuResource in self.resources.requests) || "
            "(has(self.resources.limits) && self.gpuResource in self.resources.limits))",
            message="spec.worker.resources must not name the resource of spec.worker.gpuResource: set spec.worker.gpus",
            holds=lambda worker: worker.gpu_resource not in {**worker.resources.requests, **worker.resources.limits},
        ),
        Rule(
            cel="!has(self.labels) || self.labels.all(key, !key.startsWith('rewardpool.dev/') && "
            "!key.startsWith('app.kubernetes.io/') && key != 'pod-template-hash')",
            message="spec.worker.labels must not have pod-template-hash or keys that begin with rewardpool.dev/ or app.kubernetes.io/: RewardPool and Kubernetes set those",
            holds=lambda worker: (
                not any(
                    key.startswith(("rewardpool.dev/", "app.kubernetes.io/")) or key == "pod-template-hash"
                    for key in worker.labels
                )
            ),
        ),
        Rule(
            cel="!has(self.annotations) || self.annotations.all(key, !key.startsWith('rewardpool.dev/') && !key.startsWith('deployment.kubernetes.io/'))",
            message="spec.worker.annotations must not have keys that begin with rewardpool.dev/ or deployment.kubernetes.io/: RewardPool and Kubernetes set those",
            holds=lambda worker: (
                not any(key.startswith(("rewardpool.dev/", "deployment.kubernetes.io/")) for key in worker.annotations)
            ),
        ),
    )
