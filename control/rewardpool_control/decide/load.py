"""Load of the routers, and where it is unknown, the reason.

What the routers say that answer is the least that there is: the size may grow by it, and shrinks only when all say what
they have. A router that trainers were never sent to has nothing, so it is not waited for.
"""

from typing import Final

from rewardpool_api.status import LoadStatus
from rewardpool_control.autoscaler.signals import STALE_SECONDS, tokens_per_request
from rewardpool_control.snapshot import Router, Snapshot

NAMED: Final = 3


def observed_load(snapshot: Snapshot) -> LoadStatus | None:
    """Requests at the routers, summed over those that are to stay; None while a metric is missing."""
    return None if missing_metrics(snapshot) is not None else least_load(snapshot)


def least_load(snapshot: Snapshot) -> LoadStatus | None:
    """Requests at the routers that say what they have: at least so many there are. None when no router says it."""
    known = [router for router in _staying(snapshot) if _is_fresh(router)]
    if not known:
        return None
    return LoadStatus(
        in_flight=sum(entry.in_flight or 0 for router in known for entry in router.registered or ()),
        waiting=sum(router.waiting or 0 for router in known),
        tokens_per_request=tokens_per_request(snapshot.announcements, now=snapshot.now),
    )


def missing_metrics(snapshot: Snapshot) -> str | None:
    """Return the missing metrics, in words that stay the same while they are; None when all are there."""
    staying = _staying(snapshot)
    if not staying:
        return "there is no router"
    counted = [router for router in staying if router.exposed or router.concealed] or staying
    missing = [f"router {router.name} {what}" for router in counted if (what := _missing(router)) is not None]
    more = f", and {len(missing) - NAMED} more routers" if len(missing) > NAMED else ""
    return "; ".join(missing[:NAMED]) + more if missing else None


def _staying(snapshot: Snapshot) -> list[Router]:
    return [router for router in snapshot.routers if not router.deleting]


def _is_fresh(router: Router) -> bool:
    return router.answering and router.registered is not None and router.age_seconds <= STALE_SECONDS


def _missing(router: Router) -> str | None:
    # A router that does not answer may hold many requests, as may one that answered a while ago.
    if not router.answering or router.registered is None:
        return "does not answer"
    if not _is_fresh(router):
        return f"has given no metrics for more than {STALE_SECONDS:g} s"
    silent = next((entry.url for entry in router.registered if entry.in_flight is None), None)
    if silent is not None:
        return f"does not say how many requests are at {silent}"
    if router.waiting is None:
        return "does not say how many requests wait"
    return None
