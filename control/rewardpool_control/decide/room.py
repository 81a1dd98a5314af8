"""Detection of a worker that lacks room which other workers of the pool would make by leaving.

The scheduler writes of a pod that no node takes how many nodes refuse it and why, and whether deleting pods would help:

    0/3 nodes are available: 1 node(s) had untolerated taint {maintenance: true}, 2 Insufficient nvidia.com/gpu.
    preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.

A node without GPUs is always "Insufficient nvidia.com/gpu", so the first line alone would take a worker that serves for
nothing. A quota refuses the pod, which is then never made, and says by how much; for a pod that needs more than the
quota has in all, no other one's leaving makes room:

    exceeded quota: gpus, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=1, limited: …/gpu=1

A queue (Kueue) holds a pod by a scheduling gate: the pod waits for a decision of the queue's, which a worker's leaving
does not change.
"""

import re
from datetime import timedelta
from typing import Final

from rewardpool_control.snapshot import Snapshot, Worker

# Begins the words about a pod that waits for a queue, and that the scheduler ignores meanwhile.
GATED: Final = "SchedulingGated"
# A queue gates every pod for a moment, and admits one that it has room for within a second or two.
GATE_PATIENCE: Final = timedelta(seconds=15)
_QUOTA: Final = "exceeded quota"
_REQUESTED: Final = " requested: "
_USED: Final = " used: "
_LIMITED: Final = " limited: "
# GPUs and pods; amounts with a unit, such as those of memory, are not compared.
_COUNTS: Final = re.compile(r"([^\s,=]+)=([0-9]{1,9})(?=,|$)")
_ROOM_WORDS: Final = (
    "Insufficient ",
    "Too many pods",
    "free ports for the requested pod ports",
    "exceed max volume count",
    "ReadWriteOncePod",
    "pod anti-affinity rules",
)
_PREEMPTION: Final = "preemption:"
_HELPS: Final = "No preemption victims found"
_HELPS_NOT: Final = "Preemption is not helpful"


def lacks_room(words: str) -> bool:
    """Return whether a pod is refused because of other pods, in the words of scheduler or quota."""
    if _QUOTA in words:
        return not _outgrows_quota(words)
    reasons, _, preemption = words.partition(_PREEMPTION)
    named = any(known in reasons for known in _ROOM_WORDS)
    if _HELPS in preemption or _HELPS_NOT in preemption:
        return named and _HELPS in preemption
    return named and not _has_another(reasons)


def _outgrows_quota(words: str) -> bool:
    """Return whether a pod requests more of a countable resource than its quota has in all."""
    requested, _, rest = words.partition(_REQUESTED)[2].partition(_USED)
    limits = dict(_COUNTS.findall(rest.partition(_LIMITED)[2]))
    return any(int(count) > int(limits.get(name, count)) for name, count in _COUNTS.findall(requested))


def _has_another(reasons: str) -> bool:
    """Return whether nodes refuse the pod for a reason that no pod's leaving removes."""
    # Nodes that lack room may then never have any, such as those without GPUs.
    _, scheduler, listed = reasons.partition("nodes are available: ")
    # On one machine the words are the supervisor's, about its GPUs alone.
    return bool(scheduler) and any(
        not any(known in reason for known in _ROOM_WORDS) for reason in listed.strip().rstrip(".").split(", ") if reason
    )


def missing_for(snapshot: Snapshot, revision: str) -> str | None:
    """Return why a worker of the revision has no node, in the words of scheduler or quota; None when all have one."""
    for worker in snapshot.workers_of(revision):
        may_be_admitted = is_gated(worker) and snapshot.now - worker.created < GATE_PATIENCE
        if worker.active and worker.unschedulable and not may_be_admitted:
            return worker.unschedulable
    worker_set = snapshot.set_of(revision)
    refused = worker_set.refused if worker_set is not None else None
    return refused if refused is not None and lacks_room(refused) else None


def is_gated(worker: Worker) -> bool:
    """Return whether a queue has not admitted the worker yet."""
    return worker.unschedulable is not None and worker.unschedulable.startswith(GATED)
