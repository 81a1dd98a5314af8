"""What a replica's pod needs."""

from typing import Annotated, Any

from pydantic import Field

from rewardpool_api.inference import INFERRED
from rewardpool_api.quantities import Seconds
from rewardpool_api.rules import ApiModel

ResourceName = Annotated[
    str, Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
]
PodTemplate = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


class WorkerSpec(ApiModel):
    """What a replica's pod needs."""

    gpus: Annotated[int, Field(ge=0, le=64), INFERRED] = 1
    """GPUs per replica; 0 for CPU engines. Default: 0 for a `python://` source, 1 for any other. On one machine without Kubernetes each replica gets NVIDIA GPUs of its own by CUDA_VISIBLE_DEVICES, and with 0 all see the same."""
    gpu_resource: ResourceName = "nvidia.com/gpu"
    """Resource name the GPUs are requested by (MIG slices and other vendors have their own)."""
    drain_seconds: Seconds = 60
    """How long a leaving replica may take to finish what it has in flight."""
    pod_template: PodTemplate = {}
    """Merged over the rendered pod template: resources, nodeSelector, tolerations, volumes, priorityClassName …; containers merge by name (`worker`)."""
