"""Step 5: what every router's worker list should be.

The lists are compared with the workers on every pass and in every router, so a restarted router, a missed event or a
change by hand heals by itself. A worker joins once it answered; it stays listed while it runs and is wanted (a busy
worker that is slow to answer a probe is not thrown out: the router has its own health check for that), and an address
that belongs to no such worker is taken off.
"""

from collections.abc import Collection
from dataclasses import dataclass

from rewardpool_control.decide.drain import Drain
from rewardpool_control.plan import Join, Leave
from rewardpool_control.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class WorkerListChanges:
    """Changes to the routers' lists, and how many workers serve."""

    joins: tuple[Join, ...] = ()
    leaves: tuple[Leave, ...] = ()
    serving: tuple[str, ...] = ()
    wanted: frozenset[str] = frozenset()


def reconcile_routers(snapshot: Snapshot, leaving: Drain, *, barred: Collection[str] = ()) -> WorkerListChanges:
    """Compare every router's list with the workers."""
    staying = [
        worker
        for worker in snapshot.workers
        if worker.url
        and worker.running
        and not worker.disruption_target
        and worker.name not in barred
        and leaving.stays(worker)
    ]
    may_join = {worker.url for worker in staying if worker.answering and worker.url}
    stay_listed = {worker.url for worker in staying}
    joins: list[Join] = []
    leaves: list[Leave] = []
    lists: list[set[str]] = []
    # One that was just started has an empty list, and nobody is sent to it: what serves goes on serving.
    reached = any(router.answering and router.exposed for router in snapshot.routers)
    for router in snapshot.routers:
        if not router.answering or router.registered is None:
            continue
        listed = {entry.url for entry in router.registered}
        if router.exposed or not reached:
            lists.append(listed)
        # A router that is being deleted takes no new work, but it still forgets workers that leave.
        if not router.deleting:
            joins += [Join(router=router.name, worker_url=url) for url in sorted(may_join - listed)]
        leaves += [
            Leave(router=router.name, worker_id=entry.id, worker_url=entry.url)
            for entry in router.registered
            if entry.url not in stay_listed
        ]
    serving = tuple(
        worker.name
        for worker in staying
        if worker.answering and lists and all(worker.url in listed for listed in lists)
    )
    return WorkerListChanges(joins=tuple(joins), leaves=tuple(leaves), serving=serving, wanted=frozenset(may_join))
