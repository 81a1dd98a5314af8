"""What is written at once, and what every few seconds."""

from typing import Any

import pytest

from rewardpool_api import RewardPoolStatus
from rewardpool_operator.kubernetes.volatile_status import own, without_volatile

TIME = "2026-01-01T12:00:00Z"
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
    "conditions": [{"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": TIME}],
}


def changed(*, scaling: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    return {**BEFORE, "scaling": {**BEFORE["scaling"], **(scaling or {})}, **others}


def is_news(after: dict[str, Any]) -> bool:
    found, wanted = (
        RewardPoolStatus.model_validate(status).model_dump(mode="json", by_alias=True, exclude_none=True)
        for status in (BEFORE, after)
    )
    return without_volatile(wanted) != without_volatile(found)


@pytest.mark.parametrize(
    "after",
    [
        changed(load={"inFlight": 4}),
        changed(load=None),
        changed(scaling={"reason": "4 requests over 4 per replica"}),
        changed(scaling={"recommendedReplicas": 2}),
        changed(scaling={"idleSince": TIME}),
        changed(scaling={"window": [{"time": TIME, "replicas": 2}]}),
        changed(scaling={"serviceRate": {"perReplica": 4.0, "inFlight": 4, "measured": [], "time": TIME}}),
        changed(scaling={"bursts": [{"begun": TIME, "replicas": 9}]}),
        changed(demands=[{**BEFORE["demands"][0], "phase": "Update", "samples": 65, "nextBurst": TIME}]),
        changed(firstScore={"since": TIME, "seconds": 2.0, "waitsFor": "Load"}),
    ],
)
def test_figures_are_no_news(after: dict[str, Any]) -> None:
    assert not is_news(after)


@pytest.mark.parametrize(
    "after",
    [
        changed(scaling={"desired": 2}),
        changed(scaling={"limit": "MaxReplicas"}),
        changed(scaling={"starts": [{"worker": "a", "seconds": 9.0}]}),
        changed(demands=[{**BEFORE["demands"][0], "state": "Lapsed"}]),
        changed(demands=[{**BEFORE["demands"][0], "stalled": True}]),
        changed(demands=[]),
        changed(conditions=[]),
        changed(replicas=2),
    ],
)
def test_decisions_and_conditions_are(after: dict[str, Any]) -> None:
    assert is_news(after)


def test_what_is_asked_of_a_budget_is_news_for_its_other_pools() -> None:
    held = changed(scaling={"limit": "Budget", "recommendedReplicas": 5})
    assert without_volatile(held) != without_volatile(changed(scaling={"limit": "Budget", "recommendedReplicas": 6}))


def test_conditions_of_other_controllers_and_their_order_are_nothing_to_write_for() -> None:
    ready, degraded, theirs = (
        {"type": kind, "status": "True"} for kind in ("Ready", "Degraded", "example.com/Audited")
    )
    assert own({"conditions": [theirs, degraded, ready]}) == own({"conditions": [ready, degraded]})
    assert own({"conditions": [ready]}) != own({"conditions": [ready, degraded]})
