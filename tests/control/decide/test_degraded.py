"""Degraded by what could not be read or written, and by what Kubernetes refuses; and what of keys is said."""

from dataclasses import replace
from typing import Any

import pytest
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPoolStatus
from rewardpool_api.status import MAX_MESSAGE, AuthStatus, KeyRotation
from rewardpool_control.decide import decide
from rewardpool_control.decide.hold import hold
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import Failure, Snapshot

REFUSED = Failure(reason="ApplyFailed", message="since noon: the API server says no")
UNREADABLE = Failure(reason="SecretsUnreadable", message="since noon: forbidden")
EXITED = Failure(reason="EngineExited", message="out of memory")


def degraded(plan: Plan) -> tuple[str, str]:
    condition = plan.status.condition("Degraded")
    assert condition is not None
    assert condition.status == "True"
    return condition.reason, condition.message


def of(*failures: Failure, **parts: Any) -> Snapshot:
    return replace(a_snapshot(a_worker("a")), failures=failures, **parts)


def test_what_failed_before_is_said_with_the_first_as_the_reason() -> None:
    assert degraded(decide(of(UNREADABLE, REFUSED))) == (
        "SecretsUnreadable",
        f"{UNREADABLE.message}; {REFUSED.message}",
    )


def test_what_is_wrong_with_a_worker_is_said_behind_it() -> None:
    failing = a_worker("a", answering=False, running=False, failure=EXITED)
    plan = decide(replace(a_snapshot(failing, routers=(a_router(),)), failures=(REFUSED,)))
    assert degraded(plan) == ("ApplyFailed", f"{REFUSED.message}; EngineExited: out of memory")


@pytest.mark.parametrize(("late", "reason"), [(59.0, "AsExpected"), (60.0, "WorkerNotListed")])
def test_a_worker_that_a_router_does_not_list_for_a_minute_is_named(late: float, reason: str) -> None:
    both = (a_worker("a"), a_worker("b"))
    routers = (a_router("one", workers=both), a_router("two", workers=both[:1], late_seconds=late))
    condition = decide(a_snapshot(*both, routers=routers)).status.condition("Degraded")
    assert condition is not None
    assert condition.reason == reason
    assert (f"router two does not list {both[1].url}; most often" in condition.message) == (late == 60)


def test_a_failure_that_lasts_is_one_event_and_keeps_its_time() -> None:
    first = decide(of(REFUSED))
    assert [event.reason for event in first.events if event.type == "Warning"] == ["ApplyFailed"]
    known = replace(of(REFUSED), pool=a_pool(status=first.status))
    again = decide(replace(known, now=NOW.replace(hour=23)))
    assert again.status.condition("Degraded") == first.status.condition("Degraded")
    assert [event.reason for event in again.events if event.reason == "ApplyFailed"] == []


def test_of_several_messages_the_beginning_is_kept() -> None:
    long = Failure(reason="ApplyFailed", message="first " + "x" * MAX_MESSAGE)
    assert degraded(decide(of(long, UNREADABLE)))[1].startswith("first")


def test_where_nothing_can_be_decided_the_other_failures_are_said_as_well() -> None:
    plan = hold(of(REFUSED), Failure(reason="ReconcileFailed", message="a defect"))
    assert degraded(plan) == ("ApplyFailed", f"{REFUSED.message}; ReconcileFailed: a defect")


@pytest.mark.parametrize("whose", ["workers", "routers"])
def test_pods_that_kubernetes_does_not_make_are_said(whose: str) -> None:
    snapshot = of()
    if whose == "routers":
        snapshot = replace(snapshot, routers_refused="exceeded quota")
    else:
        sets = tuple(replace(one, refused="exceeded quota") for one in snapshot.worker_sets)
        assert sets
        snapshot = replace(snapshot, worker_sets=sets)
    assert degraded(decide(snapshot)) == ("FailedCreate", "exceeded quota")


def test_how_far_a_change_of_keys_is_is_in_the_status_and_its_beginning_an_event() -> None:
    rotation = KeyRotation(phase="Preparing", since="2026-01-01T12:00:00Z", request="2")
    plan = decide(of(rotation=rotation))
    assert plan.status.auth.rotation == rotation
    assert [event.reason for event in plan.events if "Key" in event.reason] == ["KeyRotationStarted"]
    known = a_pool(status=RewardPoolStatus(auth=AuthStatus(rotation=rotation)))
    again = decide(of(rotation=rotation, pool=known, routers=(a_router(),)))
    assert [event.reason for event in again.events if "Key" in event.reason] == []


def test_an_edit_of_the_key_that_is_taken_back_is_an_event() -> None:
    plan = decide(of(key_refused="key must be 16 characters"))
    assert [event.message for event in plan.events if event.reason == "KeyRefused"] == ["key must be 16 characters"]
