"""The two pools: as many workers as 256 callers need, and one that grows by what it is asked."""

from typing import Any, Final

from training_step.protocol import FIXED, Protocol

PER_WORKER: Final = 64
"""Calls at a time that a worker takes, and what autoscaling aims at."""
LARGEST: Final = 16
"""Workers of the elastic pool at the most; a step of the published run does not need 1,024 calls at a time."""

Manifest = dict[str, Any]


def manifest(name: str, protocol: Protocol) -> Manifest:
    """The pool of that name."""
    spec: Manifest = {
        "model": {"source": "python://training_step.sleeper:compute_score"},
        "sandbox": {"concurrency": PER_WORKER},
    }
    if name == FIXED:
        spec["replicas"] = max(1, -(-protocol.callers // PER_WORKER))
    else:
        policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": PER_WORKER}}
        spec["autoscaling"] = {"minReplicas": 1, "maxReplicas": LARGEST, "policy": policy}
    return {
        "apiVersion": "rewardpool.dev/v1alpha1",
        "kind": "RewardPool",
        "metadata": {"name": name},
        "spec": spec,
    }


def callers(name: str, protocol: Protocol) -> int:
    """Requests that the client has in flight at the most."""
    return protocol.callers if name == FIXED else PER_WORKER * LARGEST
