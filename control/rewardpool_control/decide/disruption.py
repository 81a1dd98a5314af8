"""Number of pods that a disruption may not take, for the budgets of workers, routers and gateways.

Of what serves, one pod at a time may be taken. What is wanted and on no node protects nothing; but
one that was taken is missed until another one serves in its place, or until none is on its way to that. So the number
grows with what serves, and falls with what is there. What was protected until now is read from the budget itself.
"""

from rewardpool_control.snapshot import Snapshot


def protected_workers(snapshot: Snapshot) -> int:
    """Workers of which one may be taken."""
    known = [worker for worker in snapshot.workers if not worker.node_unreachable]
    serving = sum(worker.answering and not worker.deleting for worker in known)
    present = sum(worker.answering or (worker.unschedulable is None and worker.failure is None) for worker in known)
    return _kept(snapshot.protected_workers, serving=serving, present=present)


def protected_routers(snapshot: Snapshot) -> int:
    """Routers of which one may be taken."""
    serving = sum(router.exposed and router.answering and not router.deleting for router in snapshot.routers)
    present = sum(router.answering or router.failure is None for router in snapshot.routers)
    return _kept(snapshot.protected_routers, serving=serving, present=present)


def protected_gateways(snapshot: Snapshot) -> int:
    """Gateways of which one may be taken."""
    gateway = snapshot.gateway
    if gateway is None:
        return 0
    present = gateway.ready if gateway.failure is not None else max(gateway.ready, gateway.wanted)
    return _kept(snapshot.protected_gateways, serving=gateway.ready, present=present)


def _kept(before: int | None, *, serving: int, present: int) -> int:
    return max(serving, min(before or 0, present))
