"""GPUs that are only said to be there: the scheduler counts them, the kubelet starts the pods that ask for them."""

import json
from collections.abc import Callable

RESOURCE = "nvidia.com/gpu"


def fake_gpus(kubectl: Callable[..., str], node: str, count: int) -> None:
    """Write `count` GPUs into the node's status."""
    amounts = {RESOURCE: str(count)}
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    kubectl("patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)
