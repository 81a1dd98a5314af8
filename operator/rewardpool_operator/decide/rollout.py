"""Step 2: how many workers of which revision.

With one revision the answer is the wanted number. While an old revision still has workers:

- **Surge** starts all of the new one and lets the old ones go as new ones answer, so the number that answers never
  falls below what is wanted;
- **Replace** never holds more than is wanted: an old worker leaves, then a new one starts in its place;
- **Auto** is Surge until the scheduler says that a new worker fits nowhere, then Replace for the rest of the rollout.

A new revision that does not answer takes nothing from the old one under Surge, and at most one worker under Replace. Of
several old revisions the ones that answer less go first, so a broken revision never blocks the one that mends it.
"""

from dataclasses import dataclass
from datetime import timedelta

from rewardpool_operator.snapshot import Snapshot, Worker

REPLACING = "Replacing"
SURGING = "Surging"
NO_ROOM = "ReplacingForLackOfRoom"
DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Sizes by revision, and how the rollout goes."""

    sizes: dict[str, int]
    """Wanted active workers of every revision that has any or shall have some; the present one is always there."""
    old: tuple[str, ...] = ()
    """Revisions that are on their way out and still have workers."""
    reason: str | None = None
    """Why the sizes are what they are while a rollout is under way; None when none is."""
    no_room: str | None = None
    """The scheduler's words when a new worker fits nowhere."""
    overdue: bool = False
    """Whether the present revision had its time and none of its workers ever answered in it."""


def allocate(snapshot: Snapshot, wanted: int) -> Rollout:
    """Divide the wanted number among the revisions."""
    old = _old_revisions(snapshot)
    overdue = _is_overdue(snapshot)
    if not old:
        return Rollout(sizes={snapshot.revision: wanted}, overdue=overdue)
    new = [worker for worker in snapshot.workers_of(snapshot.revision) if worker.active]
    no_room = next((worker.unschedulable for worker in new if worker.unschedulable), None)
    reason = _strategy(snapshot, no_room)
    if reason == SURGING:
        size = wanted
        keep_old = wanted - sum(worker.answering for worker in new)
    else:
        size, keep_old = _replace(snapshot, wanted, new)
    sizes = {snapshot.revision: size, **_divide(snapshot, old, max(0, keep_old))}
    return Rollout(sizes=sizes, old=old, reason=reason, no_room=no_room, overdue=overdue)


def _is_overdue(snapshot: Snapshot) -> bool:
    limit = timedelta(seconds=snapshot.pool.spec.rollout.progress_deadline_seconds)
    present = [worker_set for worker_set in snapshot.worker_sets if worker_set.revision == snapshot.revision]
    workers = [worker for worker in snapshot.workers_of(snapshot.revision) if worker.active]
    if not workers or any(worker.answering for worker in workers):
        return False
    return any(worker_set.created is not None and snapshot.now - worker_set.created > limit for worker_set in present)


def _old_revisions(snapshot: Snapshot) -> tuple[str, ...]:
    revisions = {worker_set.revision for worker_set in snapshot.worker_sets}
    revisions |= {worker.revision for worker in snapshot.workers}
    occupied = {
        revision
        for revision in revisions - {snapshot.revision}
        if snapshot.workers_of(revision) or _set_size(snapshot, revision) > 0
    }
    return tuple(sorted(occupied))


def _set_size(snapshot: Snapshot, revision: str) -> int:
    return sum(worker_set.replicas for worker_set in snapshot.worker_sets if worker_set.revision == revision)


def _strategy(snapshot: Snapshot, no_room: str | None) -> str:
    match snapshot.pool.spec.rollout.strategy:
        case "Surge":
            return SURGING
        case "Replace":
            return REPLACING
        case _:
            # Once there was no room, it stays Replace for this rollout: the worker that fitted nowhere is gone by the
            # next pass, and with it the evidence. The condition remembers.
            progressing = snapshot.pool.status.condition("Progressing")
            remembered = (
                progressing is not None
                and progressing.reason == NO_ROOM
                and snapshot.pool.status.revision == snapshot.revision
            )
            return NO_ROOM if no_room or remembered else SURGING


def _replace(snapshot: Snapshot, wanted: int, new: list[Worker]) -> tuple[int, int]:
    """Sizes of the new revision and of all old ones together, one worker moving at a time.

    An old worker holds its GPU until it is gone, so those that are leaving count against the room of the new revision.
    """
    old = sum(worker.active for worker in snapshot.workers if worker.revision != snapshot.revision)
    leaving = sum(not worker.active for worker in snapshot.workers)
    answering = sum(worker.answering for worker in new)
    size = max(0, min(answering, wanted), wanted - old - leaving)
    keep_old = min(old, max(0, wanted - answering))
    settled = leaving == 0 and answering == len(new) == size
    if settled and keep_old == old > 0:
        keep_old -= 1
    return size, keep_old


def _divide(snapshot: Snapshot, old: tuple[str, ...], keep: int) -> dict[str, int]:
    """Give the kept number to the old revisions that answer most."""
    sizes: dict[str, int] = {}

    def answering(revision: str) -> int:
        return sum(worker.active and worker.answering for worker in snapshot.workers_of(revision))

    for revision in sorted(old, key=lambda revision: (-answering(revision), revision)):
        # No more than there are: an old revision never grows.
        sizes[revision] = min(keep, answering(revision))
        keep -= sizes[revision]
    return sizes
