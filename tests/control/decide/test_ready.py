"""What Ready and Serving say, and what kstatus, the rules of Flux, Helm and kpt, makes of it."""

from dataclasses import replace
from typing import Any, Final

import pytest
from support.decide_builders import a_pool, a_router, a_snapshot, a_worker
from support.kstatus import words_for

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_api.schema import custom_resource_definition
from rewardpool_api.status import FailedRollout, RolloutStatus
from rewardpool_control.decide import decide
from rewardpool_control.decide.hold import hold
from rewardpool_control.snapshot import Failure, Snapshot

AUTOSCALED: Final = {
    "minReplicas": 0,
    "maxReplicas": 4,
    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 32}},
}
"""The README's own example starts so: at zero, until somebody asks."""
OLD, NEW = a_worker("old", revision="old"), a_worker("new")
BROKEN = a_worker("b", answering=False, running=False, failure=Failure(reason="OutOfMemory", message="no room"))
UNSCORED = a_worker("w", answering=False, no_score="The model `sn` does not exist.")
FAILED = FailedRollout(revision="new", reason="OutOfMemory", message="no room", time="2026-01-01T11:00:00Z")


def empty(pool: RewardPool, *, routed: bool = True) -> Snapshot:
    return a_snapshot(pool=pool, routers=(a_router(answering=routed, registered=() if routed else None),))


def remembering(**rollout: Any) -> RewardPoolStatus:
    return RewardPoolStatus(current_revision="new", rollout=RolloutStatus(**{"target_revision": "new", **rollout}))


PAUSED = a_pool(remembering(stable_revision="old"), replicas=1, rollout={"paused": True})

SITUATIONS: Final[dict[str, tuple[Snapshot, str, str, str]]] = {
    # What is there, Serving, Ready, kstatus' word.
    "at zero": (empty(a_pool(autoscaling=AUTOSCALED)), "False AtZero", "True AtZero", "Current"),
    "at zero by hand": (empty(a_pool(replicas=0)), "False AtZero", "True AtZero", "Current"),
    "at zero without a router, which is to take the first request": (
        empty(a_pool(replicas=0), routed=False),
        "False RouterNotReady",
        "False RouterNotReady",
        "InProgress",
    ),
    "suspended": (empty(a_pool(replicas=1, suspend=True)), "False Suspended", "True Suspended", "Current"),
    "starting": (empty(a_pool(replicas=1)), "False Starting", "False Starting", "InProgress"),
    "starting without a score": (
        a_snapshot(UNSCORED, pool=a_pool(replicas=1), routers=(a_router(),)),
        "False NoScore",
        "False NoScore",
        "InProgress",
    ),
    "serving": (a_snapshot(NEW), "True Serving", "True Serving", "Current"),
    "degraded": (a_snapshot(NEW, BROKEN), "True Serving", "True Serving", "Current"),
    "broken": (
        a_snapshot(BROKEN, routers=(a_router(),)),
        "False OutOfMemory",
        "False OutOfMemory",
        "InProgress",
    ),
    "rolling": (a_snapshot(OLD, pool=a_pool(replicas=1)), "True Serving", "False Surging", "InProgress"),
    "rolling, paused": (a_snapshot(OLD, pool=PAUSED), "True Serving", "False Paused", "InProgress"),
    "rolled back": (
        a_snapshot(
            OLD, pool=a_pool(remembering(target_revision="old", stable_revision="old", failed=FAILED), replicas=1)
        ),
        "True Serving",
        "False RolledBack",
        "InProgress",
    ),
}


def said(status: RewardPoolStatus, kind: str) -> str:
    found = next(condition for condition in status.conditions if condition.type == kind)
    return f"{found.status} {found.reason}"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_serving_says_whether_a_score_can_be_had_and_ready_whether_the_pool_is_as_declared(situation: str) -> None:
    snapshot, serving, ready, _ = SITUATIONS[situation]
    status = decide(snapshot).status
    assert status is not None
    assert (said(status, "Serving"), said(status, "Ready")) == (serving, ready)


def test_while_nothing_is_decided_a_pool_may_serve_and_nobody_knows_whether_it_is_as_declared() -> None:
    status = hold(a_snapshot(NEW), Failure(reason="InvalidObject", message="spec.model: missing")).status
    assert status is not None
    assert (said(status, "Serving"), said(status, "Ready")) == ("True Serving", "Unknown InvalidObject")


@pytest.mark.parametrize(
    ("reason", "observed"),
    [("NoAgentSandbox", 7), ("InvalidObject", 3), ("ReconcileFailed", 3)],
)
def test_a_spec_that_the_cluster_cannot_have_is_observed_and_one_that_was_not_read_is_not(
    reason: str, observed: int
) -> None:
    snapshot = a_snapshot(NEW)
    pool = snapshot.pool.model_copy(
        update={
            "metadata": snapshot.pool.metadata.model_copy(update={"generation": 7}),
            "status": snapshot.pool.status.model_copy(update={"observed_generation": 3}),
        }
    )
    status = hold(replace(snapshot, pool=pool), Failure(reason=reason, message="no")).status
    assert status is not None
    assert status.observed_generation == observed


def as_object(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    metadata = {"name": "rm", "namespace": "rl", "generation": 1, **metadata}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "status": status}


@pytest.mark.real
def test_kstatus_waits_for_what_is_under_way_and_not_for_what_is_at_zero() -> None:
    objects, words = [], []
    for snapshot, _, _, word in SITUATIONS.values():
        generation = snapshot.pool.metadata.generation
        status = decide(snapshot).status
        assert status is not None
        objects.append(
            as_object(status.model_dump(mode="json", by_alias=True, exclude_none=True), generation=generation)
        )
        words.append(word)
    assert dict(zip(SITUATIONS, words_for(*objects), strict=True)) == dict(zip(SITUATIONS, words, strict=True))


@pytest.mark.real
def test_kstatus_waits_for_an_operator_to_look_at_a_pool_and_at_its_changes_and_sees_that_it_is_deleted() -> None:
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    never_seen = schema["properties"]["status"]["default"]
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    serving = {"observedGeneration": 1, "conditions": [ready]}
    assert words_for(
        as_object(never_seen),
        as_object(serving, generation=2),
        as_object(serving, deletionTimestamp="2026-01-01T00:00:00Z"),
    ) == ["InProgress", "InProgress", "Terminating"]


@pytest.mark.parametrize("kind", ["Serving", "WorkersReady"])
def test_why_a_worker_gives_no_score_is_in_the_condition(kind):
    status = decide(a_snapshot(UNSCORED, pool=a_pool(replicas=1), routers=(a_router(),))).status
    condition = status.condition(kind)
    assert (condition.reason, "w gives no score: The model `sn` does not exist." in condition.message) == (
        "NoScore",
        True,
    )
