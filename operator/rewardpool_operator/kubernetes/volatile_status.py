"""What of a status changes all the time, and so is written every few seconds and not at every look. Pure.

Whatever differs beside these figures is told at once: a decision, what limits it, a condition. Until its turn comes a
status is kept in memory, and the next decision is made with it, so that none of it is forgotten.
"""

from rewardpool_operator.kubernetes.client import Object

_OF_SCALING = frozenset({"reason", "asked", "idleSince", "window", "serviceRate", "bursts"})
"""`starts` and `history` are not among them: they change with the workers."""
_OF_DEMANDS = frozenset({"phase", "samples", "nextBurst", "replicas", "message"})


def without_figures(status: Object) -> Object:
    """A status, as JSON, without the figures."""
    scaling, demands = status.get("scaling"), status.get("demands")
    told = {name: value for name, value in status.items() if name != "load"}
    if scaling is not None:
        told["scaling"] = _without(scaling, _OF_SCALING)
        if scaling.get("limit") == "Budget":
            # Other pools of the budget go by it.
            told["scaling"]["asked"] = scaling.get("asked")
    if demands is not None:
        told["demands"] = [_without(demand, _OF_DEMANDS) for demand in demands]
    return told


def _without(found: Object, figures: frozenset[str]) -> Object:
    return {name: value for name, value in found.items() if name not in figures}
