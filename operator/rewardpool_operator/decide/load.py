"""What the routers hold, and where that is unknown, why. An unknown load holds the size: it is never a small one."""

from rewardpool_api.status import LoadStatus
from rewardpool_operator.autoscaler.signals import STALE_SECONDS
from rewardpool_operator.snapshot import Router, Snapshot


def observed_load(snapshot: Snapshot) -> LoadStatus | None:
    """Requests at the routers, summed over those that are to stay; None while a figure is missing."""
    if missing_figures(snapshot) is not None:
        return None
    routers = _staying(snapshot)
    return LoadStatus(
        in_flight=sum(entry.in_flight or 0 for router in routers for entry in router.registered or ()),
        waiting=sum(router.waiting or 0 for router in routers),
    )


def missing_figures(snapshot: Snapshot) -> str | None:
    """Which figure is missing, in words that stay the same while it is; None when all are there."""
    routers = _staying(snapshot)
    if not routers:
        return "there is no router"
    missing = ((router.name, _missing(router)) for router in routers)
    return next((f"router {name} {what}" for name, what in missing if what is not None), None)


def _staying(snapshot: Snapshot) -> list[Router]:
    return [router for router in snapshot.routers if not router.deleting]


def _missing(router: Router) -> str | None:
    """A router that does not answer may hold many requests, as may one that answered a while ago."""
    if not router.answering or router.registered is None:
        return "does not answer"
    if not router.age_seconds <= STALE_SECONDS:
        return f"has given no figures for more than {STALE_SECONDS:g} s"
    silent = next((entry.url for entry in router.registered if entry.in_flight is None), None)
    if silent is not None:
        return f"does not say how many requests are at {silent}"
    if router.waiting is None:
        return "does not say how many requests wait"
    return None
