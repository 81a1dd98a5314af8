"""Records of a pool besides its status: events, and decisions in the log."""

import logging
import socket
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_api.times import rfc3339
from rewardpool_control.decide.events import scaling_change
from rewardpool_control.plan import Event
from rewardpool_kube.resources import Object
from rewardpool_runtime.untrusted import printable

log = logging.getLogger(__name__)

MAX_NOTE: Final = 1024  # bytes; the API server takes no longer one


def log_scaling(old: RewardPoolStatus, status: RewardPoolStatus) -> None:
    """A line of the log for a change of the wanted number of replicas, with its figures as fields."""
    change, now = scaling_change(old, status), status.scaling
    if change is None or now is None:
        return
    before = old.scaling.desired if old.scaling else 0
    fields = {
        "scaling": {"from": before, "to": now.desired, "recommended": now.recommended_replicas, "limit": now.limit}
    }
    log.info("%s", change, extra={"fields": fields})


def event_object(pool: RewardPool, event: Event) -> Object:
    """An event of the API group events.k8s.io about a pool."""
    identity = pool.metadata.model_dump(include={"name", "namespace", "uid"})
    regarding = {"apiVersion": names.API_VERSION, "kind": names.KIND, **identity}
    return _event_object(event, name=f"{pool.metadata.name}.{token_hex(8)}", regarding=regarding)


def lease_event_object(lease: Object, event: Event) -> Object:
    """Return an event about a demand's Lease. There is one for each reason: a second one is refused for its name."""
    metadata = lease["metadata"]
    identity = {field: metadata[field] for field in ("name", "namespace", "uid")}
    regarding = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **identity}
    return _event_object(event, name=f"{event.reason.lower()}.{metadata['uid']}", regarding=regarding)


def _event_object(event: Event, *, name: str, regarding: Object) -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": regarding["namespace"]},
        "eventTime": rfc3339(datetime.now(UTC)),
        "type": event.type,
        "reason": event.reason,
        "action": "Reconcile",
        "note": printable(event.message, most=MAX_NOTE).encode()[:MAX_NOTE].decode(errors="ignore"),
        "regarding": regarding,
        "reportingController": f"{names.GROUP}/operator",
        "reportingInstance": socket.gethostname()[:128],
    }
