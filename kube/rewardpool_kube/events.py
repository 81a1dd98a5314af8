"""Events, which new components and the kubelet write with different fields."""

from rewardpool_kube.resources import Object


def last_seen(event: Object) -> str:
    """Return the RFC 3339 time at which an event was last seen; empty where it has none."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), "")


def summary(event: Object) -> str:
    """Return an event as `REASON: NOTE`."""
    return f"{event.get('reason', '')}: {event.get('note', '')}"
