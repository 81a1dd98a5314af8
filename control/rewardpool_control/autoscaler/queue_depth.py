"""Policy QueueDepth: as many replicas as hold the requests at the target, from what the routers hold.

    (in flight + waiting) / targetPerReplica

The total over a per-replica target, not an average over the pods that answered: replicas that are still starting
neither hide demand nor multiply it. Where the length of samples is known, and the policy has a target in tokens, it is
tokens over that.
"""

from rewardpool_api.autoscaling import QueueDepthPolicy
from rewardpool_control.autoscaler.proposal import Proposal


def propose(
    policy: QueueDepthPolicy, *, requests: int, tokens: float | None = None, noun: str = "requests"
) -> Proposal:
    """Return the replicas for so many requests at the routers, of so many tokens each; None where that is unknown."""
    target = policy.target_tokens_per_replica
    if tokens is None or target is None:
        target = policy.target_per_replica
        return Proposal(exact=requests / target, reason=f"{requests} {noun} over {target} per replica")
    reason = f"{requests} {noun} of {tokens:.0f} tokens over {target} tokens per replica"
    return Proposal(exact=requests * tokens / target, reason=reason)
