"""Wait for the declared state of a pool of a cluster, with reports meanwhile."""

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Final, Literal

from rewardpool_api import RewardPool
from rewardpool_api.reasons import ConditionReason
from rewardpool_cli import screens
from rewardpool_cli.cluster import Cluster
from rewardpool_cli.program import program
from rewardpool_cli.screens import wanted_replicas

LOOK_SECONDS: Final = 1.0
UNSEEN_SECONDS: Final = 30.0
# Waited beyond the pool's own deadline, by which the operator judges; a drain of old workers is added.
GRACE_SECONDS: Final = 60.0

_STOPPED: Final = frozenset(
    {
        ConditionReason.DEADLINE_EXCEEDED,
        ConditionReason.ROLLED_BACK,
        ConditionReason.PARITY_EXCEEDED,
        ConditionReason.GOLDEN_SET_UNUSABLE,
    }
)


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Progress of a change."""

    state: Literal["unseen", "waiting", "done", "failed"]
    words: str


def outlook(pool: RewardPool, *, revision_before: str | None) -> Outlook:
    """Return the progress of a change of the pool.

    Args:
        revision_before: the revision that the change replaces; None when it replaces none.
    """
    status, progressing = pool.status, pool.status.condition("Progressing")
    unseen = status.observed_generation < pool.metadata.generation or status.current_revision == revision_before
    if unseen or progressing is None:
        return Outlook(state="unseen", words="the operator has not looked at it yet")
    if progressing.reason in _STOPPED:
        return Outlook(state="failed", words=f"{progressing.reason}: {progressing.message}")
    if progressing.reason == ConditionReason.PAUSED:
        return Outlook(state="done", words=progressing.message)
    counts = f"{status.ready_replicas} of {wanted_replicas(pool)} replicas serve"
    if progressing.status == "True" or status.draining_replicas or status.ready_replicas < wanted_replicas(pool):
        return Outlook(state="waiting", words=f"{counts}; {progressing.message}")
    return Outlook(state="done", words=counts)


async def follow(cluster: Cluster, name: str, *, what: str, revision_before: str | None = None) -> bool:
    """Show the way of the pool to its declared state; returns whether it gets there."""
    began = monotonic()
    said = ""
    while True:
        pool = await cluster.pool(name)
        now, seconds = outlook(pool, revision_before=revision_before), monotonic() - began
        if now.words != said:
            said = now.words
            screens.err.print(f"{seconds:4.0f} s  {said}", markup=False, soft_wrap=True)
        if now.state == "done":
            screens.out.print(f"{pool.key}: {what}, after {seconds:.0f} s", markup=False)
            return True
        longest = pool.spec.start_seconds + pool.spec.worker.drain_seconds + GRACE_SECONDS
        if now.state == "failed" or seconds > (UNSEEN_SECONDS if now.state == "unseen" else longest):
            screens.err.print(f"not done; {program()} explain {pool.key} says why", markup=False)
            return False
        await asyncio.sleep(LOOK_SECONDS)


async def follow_replacement(cluster: Cluster, before: RewardPool, *, waits: bool, what: str) -> bool:
    """Follow a change that replaces the revision of `before`, unless it is not waited for."""
    if not waits:
        return True
    return await follow(cluster, before.metadata.name, what=what, revision_before=before.status.current_revision)
