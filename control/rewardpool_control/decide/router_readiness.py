"""Choice of the routers that trainers are sent to: those whose lists are right.

A router that was just started has an empty list, and refuses or holds what comes. On Kubernetes it is therefore not
ready, and the router that it replaces not stopped, before every worker that may serve is in its list; a pool without
such a worker needs no list, and its routers hold the request that brings it back from zero.

A router that lost its list has it back within a pass, and one that is busy answers late. So a router is taken back only
after `PATIENCE_SECONDS` in which it was not heard, or did not take a worker that it is to have; and only while another
one is right, since a router with a bad list is better than none. What it holds is not touched: it goes on answering
whoever is connected to it.
"""

from dataclasses import dataclass
from typing import Final

from rewardpool_control.decide.worker_lists import WorkerListChanges
from rewardpool_control.snapshot import Router, Snapshot

PATIENCE_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class RouterReadiness:
    """Changes to the routers that trainers are sent to."""

    expose: tuple[str, ...] = ()
    conceal: tuple[str, ...] = ()


def expose_and_conceal(snapshot: Snapshot, lists: WorkerListChanges) -> RouterReadiness:
    """Compare the routers that trainers are sent to with those whose lists are right."""
    incomplete = {join.router for join in lists.joins}
    staying = [router for router in snapshot.routers if not router.deleting]

    def is_right(router: Router) -> bool:
        known = router.answering and router.registered is not None and router.silent_seconds < PATIENCE_SECONDS
        return known and router.name not in incomplete

    def is_wrong(router: Router) -> bool:
        missing_for = router.late_seconds if router.name in incomplete else 0.0
        return max(missing_for, router.silent_seconds) >= PATIENCE_SECONDS

    exposed = [router for router in staying if router.exposed]
    may_conceal = bool(lists.wanted) and any(is_right(router) for router in exposed)
    return RouterReadiness(
        expose=tuple(router.name for router in staying if not router.exposed and is_right(router)),
        conceal=tuple(router.name for router in exposed if may_conceal and is_wrong(router)),
    )
