"""What a budget that other pools share makes of a decision."""

from dataclasses import replace

import pytest
from support.decide_builders import a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPoolStatus
from rewardpool_control.autoscaler.signals import Claim
from rewardpool_control.decide import decide
from rewardpool_control.snapshot import RegisteredWorker, WorkerSet

QUEUE = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}}
EXTERNAL = {"type": "External"}
STARTED = RewardPoolStatus.model_validate({"scaling": {"desired": 0, "reason": "no load"}})


def plan_of(*workers, policy=QUEUE, others=(), sets=None, replicas=None, requests=90, status=None):
    """The plan for a pool that would have eight replicas, and shares four with the others."""
    autoscaling = {"maxReplicas": 8, "policy": policy, "budget": {"name": "gpus", "maxReplicas": 4}}
    pool = a_pool(autoscaling=autoscaling, replicas=replicas, **({"status": status} if status else {}))
    busy = a_router(registered=(RegisteredWorker(id="a", url="http://a:8000", in_flight=requests),))
    snapshot = a_snapshot(*workers, pool=pool, routers=(busy,), sets=sets)
    return decide(replace(snapshot, claims=others))


def scaling_of(*workers, **given):
    return plan_of(*workers, **given).status.scaling


def another(wanted, held, *, total=4, **fields):
    return Claim(pool="rl/other", total=total, wanted=wanted, allocated=held, **fields)


@pytest.mark.parametrize(("policy", "replicas"), [(QUEUE, None), (EXTERNAL, 9)])
def test_what_others_hold_is_left_to_them_and_the_status_says_so(policy, replicas):
    scaling = scaling_of(policy=policy, replicas=replicas, others=(another(3, 3, stalled=True),))
    assert (scaling.desired, scaling.recommended_replicas, scaling.limit) == (1, 9, "Budget")
    assert scaling.reason.endswith("the budget has 4 replicas: other, for which a trainer waits, has 3")


def test_replicas_that_are_ending_are_no_room_for_new_ones():
    workers = (a_worker("w0"), a_worker("w1", deleting=True), a_worker("w2", deleting=True))
    assert scaling_of(*workers).desired == 2


def test_replicas_that_are_declared_and_not_there_yet_are_kept():
    declared = (WorkerSet(revision="new", replicas=3),)
    assert scaling_of(sets=declared, others=(another(4, 1, priority=-1),)).desired == 3


def test_a_pool_that_is_outranked_gives_up_what_it_has():
    workers = [a_worker(f"w{number}") for number in range(4)]
    assert scaling_of(*workers, others=(another(3, 0, stalled=True),)).desired == 1


def test_pools_that_state_different_totals_are_told_so():
    plan = plan_of(others=(another(0, 0, total=6),))
    condition = plan.status.condition("ScalingActive")
    words = "maxReplicas of budget gpus is 4 by rm, 6 by other; 4 holds"
    assert (condition.status, condition.reason, condition.message) == ("True", "BudgetDisagrees", words)
    (event,) = [event for event in plan.events if event.reason == "BudgetDisagrees"]
    assert (event.type, event.message) == ("Warning", words)


def test_a_change_is_told_with_what_was_asked_for_and_what_limits_it():
    (event,) = [event for event in plan_of(status=STARTED).events if event.reason == "Scaled"]
    assert event.message.startswith(
        "from 0 to 4 replicas, 9 recommended, limit Budget: 90 requests over 10 per replica;"
    )
