"""Policy QueueDepth: as many replicas as hold the requests at the target, from what the routers hold.

    (in flight + waiting) / targetPerReplica

The total over a per-replica target, not an average over the pods that answered: replicas that are still starting
neither hide demand nor multiply it.
"""

from rewardpool_api.autoscaling import QueueDepthPolicy
from rewardpool_control.autoscaler.ask import Ask


def ask(policy: QueueDepthPolicy, *, requests: int) -> Ask:
    """Return the replicas for so many requests at the routers."""
    target = policy.target_per_replica
    return Ask(exact=requests / target, reason=f"{requests} requests over {target} per replica")
