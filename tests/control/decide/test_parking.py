"""Replicas that are parked: how many are made, who serves, and who is kept out of the routers' lists."""

from dataclasses import replace
from typing import Any

import pytest
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker, leaving

from rewardpool_api import RewardPool, RewardPoolStatus
from rewardpool_api.status import RolloutStatus, ScalingStatus
from rewardpool_control.decide import decide
from rewardpool_control.decide.hold import kept_lists
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import RegisteredWorker, Snapshot, Worker, WorkerSet


def parking(desired: int, *, before: int | None = None, parked: int = 1, most: int = 4, **spec: Any) -> RewardPool:
    """A pool that wants so many, and wanted so many before."""
    scaling = {"minReplicas": 0, "maxReplicas": most, "policy": {"type": "External"}, "parked": parked}
    status = RewardPoolStatus(
        scaling=ScalingStatus(desired=desired if before is None else before, reason=""),
        rollout=RolloutStatus(target_revision="new", stable_revision="new"),
        current_revision="new",
    )
    return a_pool(status, replicas=desired, autoscaling=scaling, worker={"gpus": 0}, **spec)


def look(pool: RewardPool, *workers: Worker, listed: tuple[Worker, ...] = (), sets: int | None = None) -> Snapshot:
    made = None if sets is None else (WorkerSet(revision="new", replicas=sets, created=NOW),)
    return a_snapshot(*workers, pool=pool, routers=(a_router(workers=listed),), sets=made)


def joined(plan: Plan) -> set[str]:
    return {join.worker_url.removeprefix("http://").removesuffix(":8000") for join in plan.joins}


def left(plan: Plan) -> set[str]:
    return {leave.worker_id.removeprefix("id-") for leave in plan.leaves}


def made(plan: Plan) -> dict[str, int]:
    return {one.revision: one.replicas for one in plan.worker_sets}


A, B, C = a_worker("a", age_seconds=30), a_worker("b", age_seconds=20), a_worker("c", age_seconds=10)
COMES = a_worker("comes", answering=False, running=False, url=None)


@pytest.mark.parametrize(
    ("desired", "parked", "most", "replicas"),
    [(0, 1, 4, 1), (0, 2, 4, 2), (2, 1, 4, 3), (4, 1, 4, 4), (3, 2, 4, 4)],
)
def test_so_many_more_are_made_up_to_the_largest_size(desired: int, parked: int, most: int, replicas: int) -> None:
    plan = decide(look(parking(desired, parked=parked, most=most)))
    assert made(plan) == {"new": replicas}
    assert plan.status.scaling is not None
    assert plan.status.scaling.desired == desired


def test_a_suspended_pool_parks_none() -> None:
    assert made(decide(look(parking(0, suspend=True)))) == {"new": 0}


def test_a_parked_one_answers_and_joins_no_router() -> None:
    plan = decide(look(parking(0), A))
    assert (plan.joins, plan.parked) == ((), {"a"})
    assert (plan.status.replicas, plan.status.ready_replicas, plan.status.parked_replicas) == (0, 0, 1)
    assert plan.status.parked_workers == ["a"]
    ready = plan.status.condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "AtZero")


def test_one_that_starts_is_not_counted_as_parked_yet() -> None:
    plan = decide(look(parking(0), COMES))
    assert (plan.status.replicas, plan.status.parked_replicas) == (0, 0)


def test_the_status_names_no_more_of_them_than_it_has_room_for() -> None:
    plan = decide(look(parking(0, parked=40, most=40), *(a_worker(f"w{number:02}") for number in range(40))))
    assert plan.status.parked_replicas == 40
    assert plan.status.parked_workers == [f"w{number:02}" for number in range(32)]


def test_growing_from_zero_is_a_change_of_the_lists() -> None:
    plan = decide(look(parking(1, before=0), A))
    assert (joined(plan), made(plan)) == ({"a"}, {"new": 2})


def test_who_has_answered_serves_before_who_starts() -> None:
    assert joined(decide(look(parking(1, before=0), COMES, A))) == {"a"}


def test_one_that_does_not_answer_never_joins() -> None:
    assert joined(decide(look(parking(1, before=0), replace(A, answering=False)))) == set()


def test_shrinking_parks_the_least_busy_and_stops_nobody_that_is_to_be_parked() -> None:
    busy = RegisteredWorker(id="id-a", url="http://a:8000", in_flight=5)
    idle = RegisteredWorker(id="id-b", url="http://b:8000", in_flight=0)
    unknown = replace(A, in_flight=None), replace(B, in_flight=None)
    snapshot = a_snapshot(*unknown, pool=parking(1, before=2), routers=(a_router(registered=(busy, idle)),))
    plan = decide(snapshot)
    assert (left(plan), plan.parked, plan.drain, plan.stop, made(plan)) == ({"b"}, {"b"}, (), (), {"new": 2})


def test_shrinking_beyond_the_parked_ones_drains_the_rest() -> None:
    plan = decide(look(parking(0, before=2), A, B, listed=(A, B)))
    assert left(plan) == {"a", "b"}
    assert len(plan.drain) == len(plan.parked) == 1
    assert not plan.parked & set(plan.drain)


def test_a_dead_parked_one_is_replaced_and_one_that_was_leaving_is_taken_back() -> None:
    assert made(decide(look(parking(0), sets=0))) == {"new": 1}
    plan = decide(look(parking(0), leaving(A, for_seconds=1)))
    assert plan.undrain == ("a",)


def test_a_parked_one_of_an_older_revision_is_replaced_before_one_that_serves() -> None:
    serves, parked = a_worker("serves", revision="old"), a_worker("parked", revision="old")
    pool = parking(1, rollout={"strategy": "Surge"})
    first = decide(look(pool, serves, parked, COMES, A, listed=(serves,)))
    assert (first.drain, left(first)) == (("parked",), set())
    # The newer one is in the lists before the older one leaves them.
    assert joined(first) == {"a"}
    then = decide(look(pool, serves, A, B, listed=(serves, A)))
    assert (then.drain, left(then), then.parked) == (("serves",), {"serves"}, {"b"})


def test_an_older_parked_one_serves_until_a_newer_one_answers() -> None:
    parked = a_worker("parked", revision="old")
    plan = decide(look(parking(1, before=0, rollout={"strategy": "Surge"}), parked, COMES))
    assert joined(plan) == {"parked"}


def test_missing_metrics_keep_who_serves() -> None:
    silent = a_router(answering=False, registered=None, waiting=None)
    scaling = {"minReplicas": 0, "maxReplicas": 4, "policy": {"queueDepth": {"targetPerReplica": 8}}, "parked": 1}
    status = RewardPoolStatus(scaling=ScalingStatus(desired=1, reason=""))
    plan = decide(a_snapshot(A, B, pool=a_pool(status, autoscaling=scaling, worker={"gpus": 0}), routers=(silent,)))
    assert plan.status.scaling is not None
    assert (plan.status.scaling.desired, plan.drain, plan.stop) == (1, (), ())


def test_lists_that_are_kept_without_a_decision_have_no_parked_one() -> None:
    kept = kept_lists(look(parking(1), A, B, listed=(A,)))
    assert (kept.joins, kept.leaves) == ((), ())
    assert {join.worker_url for join in kept_lists(look(parking(1), A, B)).joins} == {"http://a:8000"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"worker": {"gpus": 1}}, "spec.autoscaling.parked must not be set when spec.worker.gpus"),
        ({"parked": 5}, "spec.autoscaling.parked must not be greater than spec.autoscaling.maxReplicas"),
        ({"budget": {"name": "gpus", "maxReplicas": 4}}, "spec.autoscaling.parked must not be set beside"),
    ],
)
def test_it_is_refused_where_it_makes_no_sense(spec: dict[str, Any], words: str) -> None:
    worker = spec.get("worker", {"gpus": 0})
    scaling = {"maxReplicas": 4, "policy": {"type": "External"}, "parked": 1}
    scaling |= {name: value for name, value in spec.items() if name != "worker"}
    with pytest.raises(ValueError, match=words):
        a_pool(autoscaling=scaling, worker=worker)
