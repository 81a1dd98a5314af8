"""GPUs that are only said to be there: the scheduler counts them, the kubelet starts the pods that ask for them."""

import json
from collections.abc import Callable

RESOURCE = "nvidia.com/gpu"


def fake_gpus(kubectl: Callable[..., str], node: str, count: int) -> None:
    """Write `count` GPUs into the node's status, through the given `Cluster.kubectl`."""
    _patch(kubectl, node, str(count))


def remove_fake_gpus(kubectl: Callable[..., str], node: str) -> None:
    """Take them out of the node's status again."""
    _patch(kubectl, node, None)


def _patch(kubectl: Callable[..., str], node: str, amount: str | None) -> None:
    amounts = {RESOURCE: amount}  # null removes the key
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    kubectl("patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)
