"""Whether a worker is missing for want of room: then one that leaves would make some, and waiting may.

The scheduler says so of a pod that no node takes; a quota by refusing the pod, which is then never made, and a queue
(Kueue) by a scheduling gate, which it puts on every pod for a moment. A taint, a selector or a volume is no want of
room.
"""

from datetime import timedelta
from typing import Final

from rewardpool_operator.snapshot import Snapshot, Worker

GATED: Final = "SchedulingGated"
"""Begins the words about a pod that the scheduler is not to look at yet."""
GATE_PATIENCE: Final = timedelta(seconds=15)
"""A queue that has room opens its gate within a second or two."""
_QUOTA: Final = "exceeded quota"
_ROOM_WORDS: Final = (
    "Insufficient ",
    "Too many pods",
    "free ports for the requested pod ports",
    "exceed max volume count",
    "ReadWriteOncePod",
    "pod anti-affinity rules",
    _QUOTA,
    GATED,
)
"""In the words of scheduler, quota and queue, what a pod that leaves would give back."""


def lacks_room(words: str) -> bool:
    """Whether a pod fits nowhere because of other pods: then one that leaves makes room."""
    return any(known in words for known in _ROOM_WORDS)


def missing_for(snapshot: Snapshot, revision: str) -> str | None:
    """Why a worker of the revision is on no node, in the words of who refuses it; None when all are on one."""
    waiting = [worker for worker in snapshot.workers_of(revision) if worker.active and worker.unschedulable]
    patient = [worker for worker in waiting if not _may_be_let_through(worker, snapshot)]
    if patient:
        return patient[0].unschedulable
    worker_set = snapshot.set_of(revision)
    refused = worker_set.refused if worker_set is not None else None
    return refused if refused is not None and lacks_room(refused) else None


def waits_for_room(worker: Worker, snapshot: Snapshot) -> bool:
    """Whether the worker is late for want of room, and not by its own fault.

    Where nobody serves any more, what left has made room for a worker of its own size: one that no node takes even then
    asks for more than there is. A gate is somebody else's decision, however long it takes.
    """
    if worker.unschedulable is None or not lacks_room(worker.unschedulable):
        return False
    return worker.unschedulable.startswith(GATED) or any(other.available for other in snapshot.workers)


def _may_be_let_through(worker: Worker, snapshot: Snapshot) -> bool:
    is_gated = worker.unschedulable is not None and worker.unschedulable.startswith(GATED)
    return is_gated and snapshot.now - worker.created < GATE_PATIENCE
