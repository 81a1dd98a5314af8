"""What is written at once, and what every few seconds."""

from typing import Any

import pytest

from rewardpool_api import RewardPoolStatus
from rewardpool_control.volatile_status import Change, change_between, own, without_volatile

TIME = "2026-01-01T12:00:00Z"
READY = {"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": TIME}
WHOLE = [{**READY, "type": kind} for kind in ("Serving", "WorkersReady", "RouterReady")]
BEFORE: dict[str, Any] = {
    "load": {"inFlight": 3, "waiting": 0},
    "scaling": {
        "desired": 1,
        "reason": "3 requests over 4 per replica",
        "recommendedReplicas": 1,
        "window": [{"time": TIME, "replicas": 1}],
        "serviceRate": {"perReplica": 3.0, "inFlight": 4, "measured": [], "time": TIME},
        "bursts": [{"begun": TIME, "replicas": 1}],
    },
    "demands": [{"job": "grpo", "state": "Live", "phase": "Rollout", "samples": 64, "replicas": 1}],
    "conditions": [READY],
    "rollout": {"targetRevision": "new"},
}


def changed(*, scaling: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    return {**BEFORE, "scaling": {**BEFORE["scaling"], **(scaling or {})}, **others}


def change(after: dict[str, Any]) -> Change:
    found, wanted = (
        RewardPoolStatus.model_validate(status).model_dump(mode="json", by_alias=True, exclude_none=True)
        for status in (BEFORE, after)
    )
    return change_between(found, wanted)


@pytest.mark.parametrize(
    "after",
    [
        changed(load={"inFlight": 4}),
        changed(load=None),
        changed(scaling={"reason": "4 requests over 4 per replica"}),
        changed(scaling={"recommendedReplicas": 2}),
        changed(scaling={"idleSince": TIME}),
        changed(scaling={"quietSince": TIME}),
        changed(scaling={"unannounced": TIME}),
        changed(scaling={"window": [{"time": TIME, "replicas": 2}]}),
        changed(scaling={"serviceRate": {"perReplica": 4.0, "inFlight": 4, "measured": [], "time": TIME}}),
        changed(scaling={"bursts": [{"begun": TIME, "replicas": 9}]}),
        changed(demands=[{**BEFORE["demands"][0], "phase": "Update", "samples": 65, "nextBurst": TIME}]),
        changed(firstScore={"since": TIME, "seconds": 2.0, "waitsFor": "Load"}),
        changed(costs={"since": TIME, "until": TIME, "gpus": 2}),
    ],
)
def test_figures_are_no_news(after: dict[str, Any]) -> None:
    assert change(after) is Change.FIGURES


def test_scores_alone_are_not_written_and_make_no_other_change_more_urgent() -> None:
    scored = [{**BEFORE["demands"][0], "scores": {"count": 2, "mean": 0.5}}]
    assert change(changed(demands=scored)) is Change.NOTHING
    assert change(changed(demands=scored, load={"inFlight": 4})) is Change.FIGURES


@pytest.mark.parametrize(
    "after",
    [
        changed(replicas=2),
        changed(readyReplicas=1, ready="1/2"),
        changed(scaling={"starts": [{"worker": "a", "seconds": 9.0}]}),
        changed(conditions=[{**READY, "message": "1 of 2 replicas serve"}]),
        changed(conditions=[READY, {**READY, "type": "WorkersReady"}]),
        changed(conditions=[READY, {**READY, "type": "Progressing", "reason": "Stable"}]),
        changed(rollout={"targetRevision": "new", "stableRevision": "new"}),
        changed(rollout={"targetRevision": "new", "silentSince": TIME}),
    ],
)
def test_what_leads_to_the_next_state_is_a_step(after: dict[str, Any]) -> None:
    assert change(after) is Change.STEP


def test_what_is_the_same_is_no_change() -> None:
    assert change(BEFORE) is Change.NOTHING


@pytest.mark.parametrize(
    "after",
    [
        changed(scaling={"desired": 2}),
        changed(scaling={"limit": "MaxReplicas"}),
        changed(observedGeneration=7),
        changed(demands=[{**BEFORE["demands"][0], "state": "Lapsed"}]),
        changed(demands=[{**BEFORE["demands"][0], "stalled": True}]),
        changed(demands=[]),
        changed(conditions=[]),
        changed(conditions=[{**READY, "status": "False"}]),
        changed(conditions=[{**READY, "reason": "Surging"}]),
        changed(conditions=[READY, {**READY, "type": "Degraded"}]),
        changed(conditions=[READY, *WHOLE]),
        changed(rollout={"targetRevision": "new", "stableRevision": "old"}),
        changed(conditions=[READY, {**READY, "type": "Progressing", "reason": "UpdateAvailable"}]),
    ],
)
def test_decisions_and_conditions_are_news(after: dict[str, Any]) -> None:
    assert change(after) is Change.NEWS


def test_the_reasons_of_a_start_are_one_state() -> None:
    """Until a worker answers, which of routers and workers are missing changes to and fro."""
    starting, no_router = (
        {"conditions": [{**READY, "status": "False", "reason": reason}]} for reason in ("Starting", "RouterNotReady")
    )
    assert change_between(starting, no_router) is Change.STEP


def test_what_is_asked_of_a_budget_is_news_for_its_other_pools() -> None:
    held = changed(scaling={"limit": "Budget", "recommendedReplicas": 5})
    assert without_volatile(held) != without_volatile(changed(scaling={"limit": "Budget", "recommendedReplicas": 6}))


def test_conditions_of_other_controllers_and_their_order_are_nothing_to_write_for() -> None:
    ready, degraded, theirs = (
        {"type": kind, "status": "True"} for kind in ("Ready", "Degraded", "example.com/Audited")
    )
    assert own({"conditions": [theirs, degraded, ready]}) == own({"conditions": [ready, degraded]})
    assert own({"conditions": [ready]}) != own({"conditions": [ready, degraded]})
