"""Step 4: who leaves, who stays after all, and who can be stopped.

A worker leaves in this order: out of every router, its requests done (or the deadline), then stopped. The mark that it
is leaving is on the worker itself. The one that leaves is the one with the least to lose: one that somebody else takes
away anyway, then one that no node has, then not answering before answering, then in no router yet, then the least in
flight, then the newest.
(Kubernetes' ReplicaSet controller also prefers pods that are not ready, so its choice agrees with ours.)

A set with more workers than are seen shrinks by stopped workers only: the controller chooses among all that there are,
and those that are not seen yet may have more to keep them than one that still has requests.

A worker that is deleted, evicted or preempted leaves on its own clock, the grace period of its pod: it is off the
routers at once (`worker_lists.py`), and its set replaces it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from rewardpool_control.snapshot import Snapshot, Worker, WorkerSet

# A router may have chosen a worker just before it was taken off the list: that request needs time to arrive.
SETTLE = timedelta(seconds=2)


@dataclass(frozen=True, kw_only=True)
class Drain:
    """Marks to set and to take back, workers to stop, and the resulting size of every set."""

    drain: tuple[str, ...] = ()
    undrain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    worker_sets: tuple[WorkerSet, ...] = ()

    def stays(self, worker: Worker) -> bool:
        if worker.deleting or worker.name in self.drain or worker.name in self.stop:
            return False
        return worker.draining_since is None or worker.name in self.undrain


def plan_drain(snapshot: Snapshot, sizes: dict[str, int], kept: Collection[str] = ()) -> Drain:
    """Bring every revision to its size without losing what is in flight; those of `kept` keep their empty sets."""
    drain: list[str] = []
    undrain: list[str] = []
    stop: list[str] = []
    worker_sets: list[WorkerSet] = []
    for revision, size in sizes.items():
        workers = [worker for worker in snapshot.workers_of(revision) if not worker.deleting]
        active = [worker for worker in workers if worker.active]
        draining = [worker for worker in workers if not worker.active]
        surplus = sorted(active, key=lambda worker: least_to_lose(worker, snapshot))[: max(0, len(active) - size)]
        spared = _wanted_again(draining, size - len(active))
        finished = [worker for worker in [*draining, *surplus] if worker not in spared and may_stop(worker, snapshot)]
        drain += [worker.name for worker in surplus if worker not in finished]
        undrain += [worker.name for worker in spared]
        stop += [worker.name for worker in finished]
        still_leaving = len(draining) + len(surplus) - len(spared) - len(finished)
        replicas = size + still_leaving
        declared = snapshot.set_of(revision)
        if replicas > 0 and declared is not None and declared.refused is None and declared.replicas > len(workers):
            replicas = max(replicas, declared.replicas - len(finished))
        if replicas > 0 or revision == snapshot.revision or revision in kept:
            worker_sets.append(WorkerSet(revision=revision, replicas=replicas))
    return Drain(drain=tuple(drain), undrain=tuple(undrain), stop=tuple(stop), worker_sets=tuple(worker_sets))


def least_to_lose(worker: Worker, snapshot: Snapshot) -> tuple[bool, bool, bool, bool, int, float]:
    """Sort key of those that leave, first to go first. An unknown number in flight counts as many."""
    in_flight = worker.in_flight if worker.in_flight is not None else _in_flight_by_routers(worker, snapshot)
    busy = 1_000_000 if in_flight is None else in_flight
    return (
        worker.disruption_target is None,
        worker.unschedulable is None,
        worker.answering,
        snapshot.is_listed(worker),
        busy,
        -worker.created.timestamp(),
    )


def _in_flight_by_routers(worker: Worker, snapshot: Snapshot) -> int | None:
    """Return the routers' requests at a listed worker: right at once, but 0 as soon as it is off their lists."""
    entries = [entry for router in snapshot.routers for entry in router.registered or () if entry.url == worker.url]
    known = [entry.in_flight for entry in entries if entry.in_flight is not None]
    return sum(known) if entries and len(known) == len(entries) else None


def may_stop(worker: Worker, snapshot: Snapshot) -> bool:
    """Return whether stopping the worker loses nothing, or its deadline has passed."""
    registered = snapshot.is_listed(worker)
    if not worker.answering and not registered:
        return True
    if worker.draining_since is None:
        return False
    leaving_for = snapshot.now - worker.draining_since
    if leaving_for >= timedelta(seconds=snapshot.pool.spec.worker.drain_seconds):
        return True
    # One that leaves and does not answer is gone; one that answers and refuses, as with a deleted pool's key, may still
    # send requests.
    heard = [one for one in snapshot.routers if not one.deleting or one.failure is not None]
    lists_known = all(router.registered is not None for router in heard)
    return lists_known and not registered and worker.in_flight == 0 and leaving_for >= SETTLE


def _wanted_again(draining: list[Worker], missing: int) -> list[Worker]:
    # Workers that leave and answer are taken back before new ones are started, the last to leave first.
    if missing <= 0:
        return []
    able = [worker for worker in draining if worker.answering]
    return sorted(able, key=lambda worker: str(worker.draining_since), reverse=True)[:missing]
