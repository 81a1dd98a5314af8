"""What two statuses are compared by. Pure.

Some of a status changes all the time, and so is written every few seconds and not at every look. Some of it is not
ours: other controllers may add conditions, which server-side apply leaves alone.

Whatever differs beside that is written at once: a decision, what limits it, a condition. Until its turn comes
a status is kept in memory, and the next decision is made with it, so that none of it is forgotten.
"""

from rewardpool_api.status import CONDITION_TYPES
from rewardpool_operator.kubernetes.client import Object

_OF_SCALING = frozenset({"reason", "recommendedReplicas", "idleSince", "window", "serviceRate", "bursts"})
"""`starts` and `history` are not among them: they change with the workers."""
_OF_DEMANDS = frozenset({"phase", "samples", "nextBurst", "replicas", "message"})


def own(status: Object) -> Object:
    """A status, as JSON, without other controllers' conditions; ours in one order, which no list by type promises."""
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return status
    ours = [entry for entry in conditions if isinstance(entry, dict) and entry.get("type") in CONDITION_TYPES]
    return {**status, "conditions": sorted(ours, key=lambda entry: CONDITION_TYPES.index(entry["type"]))}


def without_volatile(status: Object) -> Object:
    """A status, as JSON, without what changes all the time."""
    scaling, demands = status.get("scaling"), status.get("demands")
    kept = {name: value for name, value in status.items() if name != "load"}
    if scaling is not None:
        kept["scaling"] = _without(scaling, _OF_SCALING)
        if scaling.get("limit") == "Budget":
            # Other pools of the budget go by it.
            kept["scaling"]["recommendedReplicas"] = scaling.get("recommendedReplicas")
    if demands is not None:
        kept["demands"] = [_without(demand, _OF_DEMANDS) for demand in demands]
    if kept.get("firstScore", {}).get("waitsFor") is not None:
        del kept["firstScore"]
    return kept


def _without(found: Object, volatile: frozenset[str]) -> Object:
    return {name: value for name, value in found.items() if name not in volatile}
