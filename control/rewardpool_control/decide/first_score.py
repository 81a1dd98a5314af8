"""Parts of the first request's wait at a pool at zero: the time between two passes counts for the part that was going
on.

It begins where a request waits, no replica was wanted, and none is on a router's list. It ends with the first answer
that a router counts for a replica. The memory is `status.firstScore`, so another operator goes on with it.
"""

from datetime import timedelta
from typing import Final

from rewardpool_api.first_score import FirstScorePart, FirstScoreParts, FirstScoreStatus
from rewardpool_api.quantities import MAX_DURATION
from rewardpool_api.status import LoadStatus
from rewardpool_control.decide.drain import Drain
from rewardpool_control.decide.load import least_load
from rewardpool_control.snapshot import Snapshot, Worker

_ORDER: Final[tuple[FirstScorePart, ...]] = ("Decision", "Scheduling", "Pull", "Download", "Load", "Answer")


def first_score(
    snapshot: Snapshot, *, load: LoadStatus | None, desired: int, leaving: Drain
) -> FirstScoreStatus | None:
    """Return the wait of the first request so far, or the last one."""
    staying = [worker for worker in snapshot.workers if leaving.stays(worker)]
    before = snapshot.pool.status.first_score
    if before is None or before.waits_for is None:
        return _begun(snapshot, desired, staying) or before
    if desired == 0 and load is not None and load.in_flight == load.waiting == 0:
        return None  # whoever asked gave up, and nothing is started for nobody
    seconds = max(before.seconds, _since(snapshot, before))
    parts = _with(before.parts, before.waits_for, seconds - before.seconds)
    # A part is never gone back to: a worker that dies while it loads has its next start counted as loading, too.
    now = max(before.waits_for, _part(desired, staying), key=_ORDER.index)
    waits_for = None if now == "Answer" and _is_answered(snapshot, before, load, staying) else now
    return FirstScoreStatus(since=before.since, seconds=seconds, parts=parts, waits_for=waits_for)


def _begun(snapshot: Snapshot, desired: int, staying: list[Worker]) -> FirstScoreStatus | None:
    spec, scaling, load = snapshot.pool.spec, snapshot.pool.status.scaling, least_load(snapshot)
    at_zero = scaling is not None and scaling.desired == 0 and not any(map(snapshot.is_listed, staying))
    if spec.autoscaling is None or spec.suspend or not at_zero or load is None or not load.waiting:
        return None
    waited = round(max(router.waiting_seconds for router in snapshot.routers), 3)
    since = snapshot.now - timedelta(seconds=waited)
    part = _part(desired, staying)
    return FirstScoreStatus(since=since, seconds=waited, parts=FirstScoreParts(decision=waited), waits_for=part)


def _since(snapshot: Snapshot, before: FirstScoreStatus) -> float:
    return round((snapshot.now - before.since).total_seconds(), 3)


def _with(parts: FirstScoreParts, part: FirstScorePart, seconds: float) -> FirstScoreParts:
    name = part.lower()
    # A stored part may be as long as the schema allows, and what is written must be within it.
    return parts.model_copy(update={name: min(round(getattr(parts, name) + seconds, 3), MAX_DURATION)})


def _part(desired: int, staying: list[Worker]) -> FirstScorePart:
    nobody: FirstScorePart = "Scheduling" if desired else "Decision"
    return max((_part_of(worker) for worker in staying), key=_ORDER.index, default=nobody)


def _part_of(worker: Worker) -> FirstScorePart:
    if worker.answering:
        return "Answer"
    if worker.is_downloading:
        return "Download"
    if worker.running or worker.restarts:
        return "Load"
    return "Pull" if worker.placed and worker.unschedulable is None else "Scheduling"


def _is_answered(snapshot: Snapshot, before: FirstScoreStatus, load: LoadStatus | None, staying: list[Worker]) -> bool:
    """Return whether a router counted an answer."""
    since, new = before.since, {worker.url for worker in staying}
    # Routers count for an address, so the count of such a replica tells of its earlier time, too.
    old = [worker for worker in staying if worker.created < since]
    if any(worker.answered for worker in staying):
        return True
    if old:
        return before.waits_for == "Answer" and load is not None and load.in_flight == load.waiting == 0
    entries = [entry for router in snapshot.routers for entry in router.registered or () if entry.url in new]
    return any(entry.answered for entry in entries)
