"""Who sleeps, and what is said of it."""

from dataclasses import replace

import pytest
from support.decide_builders import NOW, a_pool

from rewardpool_api.status import RewardPoolStatus, RolloutStatus
from rewardpool_control.decide import decide
from rewardpool_control.snapshot import RegisteredWorker, Router, Snapshot, Worker, WorkerSet

URL = "http://127.0.0.1:1"
SLEEPS = {"name": "vllm", "sleep": {"enabled": True}}


def snapshot(
    *, holders: tuple[str, ...] | None = (), listed: bool = False, complete: bool = True, **worker: bool
) -> Snapshot:
    """A pool of one worker that answers."""
    rollout = RolloutStatus(target_revision="r", stable_revision="r") if complete else None
    state = Worker(name="w", revision="r", url=URL, created=NOW, running=True, answering=True)
    entries = (RegisteredWorker(id="1", url=URL),) if listed else ()
    return Snapshot(
        now=NOW,
        pool=a_pool(RewardPoolStatus(rollout=rollout), engine=SLEEPS),
        revision="r",
        url="http://127.0.0.1:2",
        worker_sets=(WorkerSet(revision="r", replicas=1, created=NOW),),
        workers=(replace(state, **worker),),  # type: ignore[arg-type]
        routers=(Router(name="router", answering=True, registered=entries, waiting=0),),
        holders=holders,
    )


def said(seen: Snapshot, kind: str = "Serving") -> tuple[str, str]:
    condition = decide(seen).status.condition(kind)  # type: ignore[arg-type]
    assert condition is not None
    return condition.status, condition.reason


def test_a_worker_leaves_the_router_before_it_sleeps() -> None:
    plan = decide(snapshot(listed=True))
    assert [leave.worker_url for leave in plan.leaves] == [URL]
    assert plan.sleep == ()
    assert decide(snapshot()).sleep == ("w",)


def test_nobody_sleeps_while_a_routers_list_is_not_known() -> None:
    seen = snapshot()
    blind = replace(seen, routers=(replace(seen.routers[0], registered=None),))
    assert decide(blind).sleep == ()


def test_a_sleeping_worker_is_in_no_router_and_is_left_alone() -> None:
    plan = decide(snapshot(asleep=True))
    assert (plan.joins, plan.sleep, plan.wake, plan.stop) == ((), (), (), ())


def test_a_holder_has_it_woken_first_and_listed_after() -> None:
    plan = decide(snapshot(holders=("1-a",), asleep=True))
    assert (plan.wake, plan.joins) == (("w",), ())
    plan = decide(snapshot(holders=("1-a",)))
    assert (plan.wake, [join.worker_url for join in plan.joins]) == ((), [URL])


@pytest.mark.parametrize(
    ("seen", "state", "reason"),
    [
        (snapshot(asleep=True), "Asleep", "Asleep"),
        (snapshot(), "Changing", "FallingAsleep"),
        (snapshot(holders=("1-a",), asleep=True), "Changing", "Waking"),
        (snapshot(holders=("1-a",), listed=True), "Awake", "Serving"),
    ],
)
def test_what_is_said(seen: Snapshot, state: str, reason: str) -> None:
    status = decide(seen).status.sleep
    assert status is not None
    assert status.state == state
    assert tuple(status.holders) == seen.holders
    assert said(seen)[1] == reason


def test_asleep_is_no_failure_and_nothing_that_changes() -> None:
    seen = snapshot(asleep=True)
    assert said(seen, "Degraded") == ("False", "AsExpected")
    assert said(seen, "Progressing") == ("False", "Stable")


def test_a_worker_that_died_starts_when_the_gpu_is_not_the_trainers() -> None:
    assert decide(snapshot(running=False, answering=False)).hold_starts
    assert not decide(snapshot(running=False, answering=False, holders=("1-a",))).hold_starts


def test_a_pool_that_was_never_complete_starts_by_itself() -> None:
    assert not decide(snapshot(running=False, answering=False, complete=False)).hold_starts


def test_a_changed_manifest_waits_until_the_pool_is_held_awake() -> None:
    changed = replace(snapshot(asleep=True), revision="new")
    assert [(one.revision, one.replicas) for one in decide(changed).worker_sets if one.replicas] == [("r", 1)]
    held = decide(replace(changed, holders=("1-a",)))
    assert "new" in [one.revision for one in held.worker_sets if one.replicas]


def test_where_nobody_wakes_engines_the_workers_stay_awake_and_the_pool_says_so() -> None:
    seen = snapshot(holders=None, listed=True)
    assert decide(seen).sleep == ()
    assert (said(seen), said(seen, "Degraded")) == (("True", "Serving"), ("True", "NoSleepHere"))
