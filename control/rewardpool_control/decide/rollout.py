"""Step 3: how many workers of which revision.

With one revision the answer is the wanted number. While another one than the target still has workers:

- **Surge** starts all of the target and lets the others go as new workers serve, answering and in every router, so the
  number that serves never falls below what is wanted;
- **Replace** never holds more than is wanted: an old worker leaves, then a new one starts in its place;
- **Auto** is Surge until there is no room for a new worker, by the word of the scheduler or a quota, then Replace for
  the rest of the rollout. Where no node takes it for another cause (a taint, a volume, a queue that has not admitted
  it), an old worker's leaving would not help.

A target that does not serve takes nothing from the others under Surge, and at most one worker under Replace. One that
still lacks room after an old worker left, since it is larger or more are wanted than fit, takes the next one, once all
of its workers that have a node serve. So a rollout ends, at the size that fits, and no more workers than that are
missing on the way.

Of several others the ones that serve less go first. A revision that failed goes at once: it has no worker that serves.
"""

from dataclasses import dataclass, replace

from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import MAX_MESSAGE, RolloutStatus
from rewardpool_control.decide.revisions import RevisionChoice, is_leaving, leaving_count
from rewardpool_control.decide.room import lacks_room, missing_for
from rewardpool_control.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Sizes by revision, and how the rollout goes."""

    sizes: dict[str, int]
    """Wanted active workers of every revision that has any, shall have some, or is kept; the present one is there."""
    choice: RevisionChoice
    others: tuple[str, ...] = ()
    reason: ConditionReason | None = None
    """Reason for the sizes while a rollout is under way; None when none is."""
    replace_reason: str | None = None
    """Words of scheduler or quota, for as long as the rollout replaces one by one because of them."""
    unschedulable: str | None = None

    @property
    def memory(self) -> RolloutStatus:
        """State that the status keeps of choice and rollout."""
        return self.choice.memory.model_copy(update={"replace_reason": self.replace_reason})


def allocate(snapshot: Snapshot, desired: int, choice: RevisionChoice, *, parked: int = 0) -> Rollout:
    """Divide the wanted number, and those to be parked, among the revisions."""
    target, wanted = choice.target, desired + parked
    sizes = dict.fromkeys([snapshot.revision, *choice.kept], 0)
    others = _others(snapshot, target)
    unschedulable = missing_for(snapshot, target)
    rollout = Rollout(sizes=sizes | {target: wanted}, choice=choice, others=others, unschedulable=unschedulable)
    if not others:
        return rollout
    lacking = unschedulable is not None and lacks_room(unschedulable)
    reason, replace_reason = _strategy(snapshot, target, unschedulable if lacking else None)
    in_place = _in_place(snapshot, target, desired=desired, parked=parked)
    if reason == ConditionReason.SURGING:
        size, keep = wanted, wanted - in_place
    else:
        size, keep = _replace(
            snapshot, wanted, target, in_place=in_place, cramped=replace_reason is not None, lacking=lacking
        )
    failed = choice.memory.failed
    able = [revision for revision in others if failed is None or revision != failed.revision]
    sizes |= dict.fromkeys(others, 0) | _divide(snapshot, able, max(0, keep)) | {target: size}
    return replace(rollout, sizes=sizes, reason=reason, replace_reason=replace_reason)


def _others(snapshot: Snapshot, target: str) -> tuple[str, ...]:
    revisions = {worker_set.revision for worker_set in snapshot.worker_sets if worker_set.replicas > 0}
    revisions |= {worker.revision for worker in snapshot.workers if worker.active or is_leaving(worker)}
    return tuple(sorted(revisions - {target}))


def _strategy(snapshot: Snapshot, target: str, no_room: str | None) -> tuple[ConditionReason, str | None]:
    """Return how old and new take turns, and the words about a lack of room, now or earlier in this rollout."""
    before = snapshot.pool.status.rollout
    # The worker that fitted nowhere is gone by the next pass, and with it the evidence.
    words = before.replace_reason if before is not None and before.target_revision == target else None
    if no_room is not None:
        words = no_room[:MAX_MESSAGE]
    match snapshot.pool.spec.rollout.strategy:
        case "Surge":
            return ConditionReason.SURGING, None
        case "Replace":
            return ConditionReason.REPLACING, words
        case _:
            return (ConditionReason.NO_ROOM, words) if words else (ConditionReason.SURGING, None)


def _in_place(snapshot: Snapshot, target: str, *, desired: int, parked: int) -> int:
    """Workers of the target that serve, and those that answer and are to be parked."""
    serving = min(desired, snapshot.serving_of(target))
    return serving + min(parked, snapshot.available_of(target) - serving)


def _replace(
    snapshot: Snapshot, wanted: int, target: str, *, in_place: int, cramped: bool, lacking: bool
) -> tuple[int, int]:
    """Return the sizes of the target and of all others together, one worker moving at a time."""
    new = [worker for worker in snapshot.workers_of(target) if worker.active]
    placed = sum(worker.unschedulable is None for worker in new)
    old = sum(worker.active for worker in snapshot.workers if worker.revision != target)
    # An old worker holds its GPU until it is gone, so those that leave count against the room of the target.
    leaving = leaving_count(snapshot)
    # Cramped: a worker of the target had no room, now or earlier in this rollout. Lacking: it has none now.
    if not cramped:
        size = max(0, min(snapshot.available_of(target), wanted), wanted - old - leaving)
    elif not lacking and leaving == 0 and in_place == placed and placed + old < wanted:
        # Whether there is room by now is found by trying, and only while nothing leaves: the scheduler's words about a
        # pod that was made earlier are older than the room.
        size = placed + 1
    else:
        size = min(placed, wanted)
    keep_old = min(old, max(0, wanted - in_place))
    settled = leaving == 0 and in_place == placed and (lacking or len(new) == size == in_place)
    if settled and keep_old == old > 0:
        keep_old -= 1
    return size, keep_old


def _divide(snapshot: Snapshot, revisions: list[str], keep: int) -> dict[str, int]:
    """Give the kept number to the revisions that serve most."""
    sizes: dict[str, int] = {}

    def rank(revision: str) -> tuple[int, int, str]:
        return -snapshot.serving_of(revision), -snapshot.available_of(revision), revision

    for revision in sorted(revisions, key=rank):
        # No more than there are: a revision that is on its way out never grows.
        sizes[revision] = min(keep, snapshot.available_of(revision))
        keep -= sizes[revision]
    return sizes
