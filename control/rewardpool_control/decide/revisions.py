"""Step 2: which revision shall have the wanted workers: the present one, or the stable one.

The present revision is what the spec renders to. It becomes the *good* one once all wanted workers of it serve, so the
routers list them (or it is the only one left and some serve: a pool may want more than there is room for). It *fails*
when none of its workers serves for `progressDeadlineSeconds`, when none ever can, or when it scores the golden set
differently; then the stable revision gets the wanted number back, until the spec renders to another revision. That one
is judged by itself, so a broken revision never blocks the one that repairs it.

The good revision keeps its set, at zero, while a newer one is on its way; so does the good one before it, for those who
want it back. Sets of all other revisions are deleted once they are empty.

The clock of the deadline runs while workers of the revision are wanted, none serves, and no worker of the pool is
leaving, which makes room. So it runs as well where Kubernetes makes no pod (a policy, a limit range, a webhook), where
the new workers are larger than what is free, and where the routers cannot reach them. It does not run while a download
of the model gets on, since that takes what it takes, nor while a queue holds all of them back. A pool that was at zero
for a day is not overdue the moment it grows, and a worker that crashes after an hour of service has its time again.

Workers that have not passed a parity check do not join a router: later steps see such workers as not answering.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rewardpool_api.reasons import NEVER_STARTS, ConditionReason
from rewardpool_api.status import MAX_MESSAGE, FailedRollout, ParityStatus, RolloutStatus
from rewardpool_control.decide.parity import Parity, admits, check_parity
from rewardpool_control.decide.room import is_gated
from rewardpool_control.snapshot import Snapshot, Worker


@dataclass(frozen=True, kw_only=True)
class RevisionChoice:
    """Choice of the revision that gets the replicas."""

    target: str
    barred: frozenset[str] = frozenset()
    overdue: bool = False
    """True if the present revision's deadline has passed, and no good revision is left to go back to."""
    hopeless: ConditionReason | None = None
    """Reason for which no other attempt of the present revision would change anything; it is overdue then."""
    parity: Parity
    memory: RolloutStatus

    @property
    def kept(self) -> tuple[str, ...]:
        """Revisions whose sets stay also without workers: nothing else has what they were rendered from."""
        known = (self.target, self.memory.stable_revision, self.memory.previous_revision)
        return tuple(dict.fromkeys(revision for revision in known if revision is not None))

    @property
    def parity_failed(self) -> ParityStatus | None:
        return _if_outcome(self.parity, "Failed")

    @property
    def parity_unusable(self) -> ParityStatus | None:
        return _if_outcome(self.parity, "Unusable")


def choose_revision(snapshot: Snapshot, desired: int, *, parked: int = 0) -> RevisionChoice:
    """Distinguish good revisions from failed ones, and choose the target; no router lists the `parked` workers."""
    before, present = snapshot.pool.status.rollout, snapshot.revision
    good = _still_there(snapshot, before.stable_revision if before else None)
    previous = _still_there(snapshot, before.previous_revision if before else None)
    parity = check_parity(snapshot, good)
    held = _target(snapshot, good, parity, failed=False) != present
    silent_since = None if held else _silent_since(snapshot, desired, parked=parked, admitted=parity.admits)
    limit = timedelta(seconds=snapshot.pool.spec.start_seconds)
    hopeless = _hopeless(snapshot) if silent_since is not None else None
    overdue = silent_since is not None and (hopeless is not None or snapshot.now - silent_since > limit)
    can_go_back = good is not None and good != present
    failed = _failed(snapshot, parity, overdue=overdue) if can_go_back else None
    target = _target(snapshot, good, parity, failed=failed is not None)
    if target == present != good and parity.admits and _is_complete(snapshot, desired, parked=parked):
        good, previous = present, good
    waiting_since = silent_since if failed is None else None
    memory = RolloutStatus(
        target_revision=target,
        stable_revision=good,
        previous_revision=previous,
        failed=failed,
        parity=parity.status,
        silent_since=waiting_since,
    )
    return RevisionChoice(
        target=target,
        barred=_barred(snapshot, parity, good),
        overdue=overdue and failed is None,
        hopeless=hopeless,
        parity=parity,
        memory=memory,
    )


def as_admitted(snapshot: Snapshot, choice: RevisionChoice) -> Snapshot:
    """The snapshot as the later steps see it: a worker that may not serve does not answer."""

    def admitted(worker: Worker) -> Worker:
        return replace(worker, answering=False) if worker.name in choice.barred else worker

    return replace(snapshot, workers=tuple(map(admitted, snapshot.workers)))


def _barred(snapshot: Snapshot, parity: Parity, good: str | None) -> frozenset[str]:
    """Workers of a revision that was not compared yet, or came out wrong."""
    revisions = {worker.revision for worker in snapshot.workers} - {snapshot.revision, good}
    known = {revision: admits(snapshot, revision, good) for revision in revisions}
    known |= {snapshot.revision: parity.admits, good or snapshot.revision: good is not None or parity.admits}
    # Of an earlier revision that is leaving perhaps nothing is known: those of its workers that a router has stay.
    return frozenset(
        worker.name
        for worker in snapshot.workers
        if known[worker.revision] is False or (known[worker.revision] is None and not snapshot.is_listed(worker))
    )


def _still_there(snapshot: Snapshot, revision: str | None) -> str | None:
    """Return the revision, unless its set was deleted: what it was rendered from is gone with it."""
    if revision is None or revision == snapshot.revision or snapshot.set_of(revision) is not None:
        return revision
    return None


def is_leaving(worker: Worker) -> bool:
    """Return whether a worker is leaving, and holds its room until it is gone."""
    # A deleted one that does not run may stay on the list for as long as its node is lost.
    return not worker.active and (worker.running or not worker.deleting)


def leaving_count(snapshot: Snapshot) -> int:
    """Return how many workers are leaving."""
    return sum(is_leaving(worker) for worker in snapshot.workers)


def _silent_since(snapshot: Snapshot, desired: int, *, parked: int, admitted: bool) -> datetime | None:
    active = [worker for worker in snapshot.workers_of(snapshot.revision) if worker.active]
    if desired + parked == 0 or (admitted and _serves(snapshot, desired)):
        return None
    if leaving_count(snapshot) or any(worker.is_loading(snapshot.now) for worker in active):
        return None
    if active and all(map(is_gated, active)):
        return None
    before = snapshot.pool.status.rollout
    if before is None or snapshot.pool.status.current_revision != snapshot.revision:
        return min((worker.created for worker in active), default=snapshot.now)
    return before.silent_since or snapshot.now


def _serves(snapshot: Snapshot, desired: int) -> bool:
    """Return whether any worker of the present revision serves, or answers where none is to be listed."""
    if desired == 0 or any(worker.asleep for worker in snapshot.workers):
        return snapshot.available_of(snapshot.revision) > 0
    return snapshot.serving_of(snapshot.revision) > 0


def _failed(snapshot: Snapshot, parity: Parity, *, overdue: bool) -> FailedRollout | None:
    before = snapshot.pool.status.rollout.failed if snapshot.pool.status.rollout else None
    if before is not None and before.revision == snapshot.revision and _stands(before, parity):
        return before
    compared = _if_outcome(parity, "Failed")
    if compared is not None:
        reason, message = ConditionReason.PARITY_EXCEEDED, compared.message
    elif overdue:
        reason = _hopeless(snapshot) or ConditionReason.DEADLINE_EXCEEDED
        message = overdue_message(snapshot, parity)
    else:
        return None
    return FailedRollout(
        revision=snapshot.revision, reason=reason.value, message=message[-MAX_MESSAGE:], time=snapshot.now
    )


def _hopeless(snapshot: Snapshot) -> ConditionReason | None:
    """A failure that no other attempt would change."""
    workers = [worker for worker in snapshot.workers_of(snapshot.revision) if worker.active]
    reasons = {worker.failure.reason for worker in workers if worker.failure is not None}
    if snapshot.pool.spec.worker.gpus:
        # The node that has it may have none today.
        reasons.discard(ConditionReason.NO_ACCELERATOR)
    return next((reason for reason in NEVER_STARTS if reason in reasons), None)


def _stands(failed: FailedRollout, parity: Parity) -> bool:
    # A failed comparison stands as long as it comes out so: a larger difference may be allowed, or a text repaired.
    if failed.reason != ConditionReason.PARITY_EXCEEDED:
        return True
    return parity.status is not None and parity.status.outcome in ("Failed", "Unusable")


def first_without_score(workers: Sequence[Worker]) -> str:
    """Return why a worker that starts gives no score, as the rest of a sentence; empty where none says."""
    return next((f"; {one.name} gives no score: {one.no_score}" for one in workers if one.no_score), "")


def overdue_message(snapshot: Snapshot, parity: Parity) -> str:
    """Return why the present revision is overdue, with the engine's last lines or the scheduler's words."""
    workers = [worker for worker in snapshot.workers_of(snapshot.revision) if worker.active]
    seconds = snapshot.pool.spec.start_seconds
    said = f"no worker of revision {snapshot.revision} served within {seconds} s"
    if _hopeless(snapshot) is not None:
        said = f"no worker of revision {snapshot.revision} can start"
    failure = next((worker.failure for worker in workers if worker.failure), None)
    unschedulable = next((worker.unschedulable for worker in workers if worker.unschedulable), None)
    if failure is not None:
        return f"{said}; {failure.reason}: {failure.message}"
    if unschedulable is not None:
        return f"{said}; no node takes it: {unschedulable}"
    worker_set = snapshot.set_of(snapshot.revision)
    if worker_set is not None and worker_set.refused is not None:
        return f"{said}; Kubernetes makes none: {worker_set.refused}"
    if not any(worker.answering for worker in workers):
        return said + first_without_score(workers)
    if parity.admits:
        return f"{said}; they answer the operator, and no router lists them: can routers reach the workers' port?"
    return f"{said}; {parity.status.message}" if parity.status is not None else said


def _target(snapshot: Snapshot, good: str | None, parity: Parity, *, failed: bool) -> str:
    present = snapshot.revision
    if good == present:
        return present
    if good is not None and (failed or parity.hold or snapshot.pool.spec.rollout.paused or snapshot.is_trainers_turn):
        return good
    if snapshot.pool.spec.rollout.paused:
        # No revision was ever good; what was on its way goes on.
        before = snapshot.pool.status.rollout
        return _still_there(snapshot, before.target_revision if before else None) or present
    return present


def _is_complete(snapshot: Snapshot, desired: int, *, parked: int) -> bool:
    if desired + parked == 0 or not _serves(snapshot, desired):
        return False
    answering = snapshot.available_of(snapshot.revision)
    serving = answering if any(worker.asleep for worker in snapshot.workers) else snapshot.serving_of(snapshot.revision)
    alone = not any(worker.active for worker in snapshot.workers if worker.revision != snapshot.revision)
    return alone or (serving >= desired and answering >= desired + parked)


def _if_outcome(parity: Parity, outcome: str) -> ParityStatus | None:
    return parity.status if parity.status is not None and parity.status.outcome == outcome else None
