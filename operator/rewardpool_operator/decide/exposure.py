"""Which routers trainers may be sent to: those whose list was right once.

A router that was just started has an empty list, and refuses or holds what comes. On Kubernetes it is therefore not
ready, and the router that it replaces not stopped, before every worker that may serve is in its list; a pool without
such a worker needs no list. That is decided once per router: one that loses its list later has it back within a pass,
and taking it away meanwhile would refuse what it holds.
"""

from rewardpool_operator.decide.membership import Membership
from rewardpool_operator.snapshot import Snapshot


def to_expose(snapshot: Snapshot, membership: Membership) -> tuple[str, ...]:
    """The routers, by name, whose readiness gate is to be opened."""
    incomplete = {join.router for join in membership.joins}
    return tuple(
        router.name
        for router in snapshot.routers
        if router.answering
        and router.registered is not None
        and not router.exposed
        and not router.deleting
        and router.name not in incomplete
    )
