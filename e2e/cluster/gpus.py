"""GPUs that are only said to be there: the scheduler counts them, the kubelet starts the pods that ask for them."""

import json
from collections.abc import Callable

RESOURCE = "nvidia.com/gpu"


def fake_gpus(kubectl: Callable[..., str], node: str, count: int, *, resource: str = RESOURCE) -> None:
    """Write `count` GPUs into the node's status, through the given `Cluster.kubectl`."""
    _patch(kubectl, node, {resource: str(count)})


def remove_fake_gpus(kubectl: Callable[..., str], node: str, *, resource: str = RESOURCE) -> None:
    """Take them out of the node's status again."""
    _patch(kubectl, node, {resource: None})  # null removes the key


def _patch(kubectl: Callable[..., str], node: str, amounts: dict[str, str | None]) -> None:
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    kubectl("patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)
