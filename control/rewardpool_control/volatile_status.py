"""Comparison of two statuses. Pure.

    news      written at once: a decision, what limits it, a pool that serves, stops, degrades
    a step    on the way to the next state, such as one more worker that answers: written once no more came for a moment
    figures   change all the time: written every few seconds, and not at every look
    scores    of jobs: written along with any of these, and never alone

Until its turn comes a status is kept in memory, and the next decision is made with it, so that none of it is forgotten.
Some of a status is not ours: other controllers may add conditions, which server-side apply leaves alone.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final

from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import CONDITION_TYPES

Object = dict[str, Any]

Paths = Mapping[str, Any]
"""Fields of an object, or of the objects of a list: None for all of one, else those of its own."""

_OF_SCALING: Final = ("reason", "idleSince", "quietSince", "unannounced", "window", "serviceRate", "bursts")
_FIGURES: Final[Paths] = {
    "load": None,
    "costs": None,
    "scaling": dict.fromkeys((*_OF_SCALING, "recommendedReplicas")),
    "demands": dict.fromkeys(("phase", "samples", "tokens", "nextBurst", "replicas", "scoreWait", "scores", "message")),
}
_SCORES: Final[Paths] = {"demands": {"scores": None}}
_STEPS: Final[Paths] = {
    **dict.fromkeys(("ready", "replicas", "readyReplicas", "drainingReplicas")),
    "scaling": {"starts": None},
    "model": dict.fromkeys(("download", "maxModelLen", "revisions", "certificate")),
    "rollout": {"silentSince": None},
    "gateway": {"readyReplicas": None},
}
_STEPS_TO_STABLE: Final[Paths] = {**_STEPS, "rollout": dict.fromkeys(("silentSince", "stableRevision"))}
_CONDITIONS_OF_STEPS = frozenset({"WorkersReady", "RouterReady", "GatewayReady"})
_WHOLE = frozenset({"Serving", "WorkersReady", "RouterReady"})
_REASONS_OF_A_START = frozenset((ConditionReason.STARTING, ConditionReason.NO_SCORE, ConditionReason.ROUTER_NOT_READY))
_PROGRESS_OF_STEPS = frozenset((ConditionReason.SCALING, ConditionReason.STABLE))
_SANDBOX_OF_STEPS = frozenset((ConditionReason.NOT_TRIED, ConditionReason.ENFORCED))


class Change(enum.Enum):
    """Kind of difference between a status and the one before."""

    NOTHING = enum.auto()
    FIGURES = enum.auto()
    STEP = enum.auto()
    NEWS = enum.auto()


def change_between(before: Object, after: Object) -> Change:
    """Return how soon the status `after` is to be written in place of the other one; both as JSON, and our own."""
    if before == after or _without(before, _SCORES) == _without(after, _SCORES):
        return Change.NOTHING
    before, after = without_volatile(before), without_volatile(after)
    if before == after:
        return Change.FIGURES
    return Change.STEP if _without_steps(before) == _without_steps(after) else Change.NEWS


def _without_steps(status: Object) -> Object:
    rollout, conditions = status.get("rollout") or {}, status.get("conditions") or []
    # The first revision that answers becomes the stable one: what serves says it too.
    is_over = rollout.get("stableRevision") == rollout.get("targetRevision")
    holding = {entry.get("type") for entry in conditions if entry.get("status") == "True"}
    return {
        **_without(status, _STEPS_TO_STABLE if is_over else _STEPS),
        "conditions": [_news_of(entry) for entry in conditions if not _is_step(entry)],
        "is whole": holding >= _WHOLE,
    }


def is_serving(status: Object) -> bool:
    """Return whether a score can be had, by the status as JSON."""
    return any((entry["type"], entry["status"]) == ("Serving", "True") for entry in status.get("conditions", []))


def _news_of(condition: Object) -> tuple[Any, ...]:
    kind, status, reason = (condition.get(name) for name in ("type", "status", "reason"))
    return kind, status, "" if reason in _REASONS_OF_A_START else reason


def _is_step(condition: Object) -> bool:
    kind, reason = condition.get("type"), condition.get("reason")
    steps = {"Progressing": _PROGRESS_OF_STEPS, "Sandboxed": _SANDBOX_OF_STEPS}
    return kind in _CONDITIONS_OF_STEPS or reason in steps.get(str(kind), ())


def own(status: Object) -> Object:
    """A status, as JSON, without other controllers' conditions; ours in one order, which no list by type promises."""
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return status
    ours = [entry for entry in conditions if isinstance(entry, dict) and entry.get("type") in CONDITION_TYPES]
    return {**status, "conditions": sorted(ours, key=lambda entry: CONDITION_TYPES.index(entry["type"]))}


def without_volatile(status: Object) -> Any:
    """A status, as JSON, without what changes all the time."""
    figures = _FIGURES
    if (status.get("scaling") or {}).get("limit") == "Budget":
        # Other pools of the budget go by what is recommended.
        figures = {**figures, "scaling": dict.fromkeys(_OF_SCALING)}
    if (status.get("firstScore") or {}).get("waitsFor") is not None:
        figures = {**figures, "firstScore": None}
    return _without(status, figures)


def _without(found: Any, paths: Paths) -> Any:
    if isinstance(found, list):
        return [_without(one, paths) for one in found]
    if not isinstance(found, dict):
        return found
    kept = ((name, value) for name, value in found.items() if paths.get(name, paths) is not None)
    return {name: _without(value, paths[name]) if name in paths else value for name, value in kept}
