"""What the first request at a pool at zero waits for: tables of looks, a clock of the test's own."""

from datetime import timedelta
from typing import Any

import pytest
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPoolStatus
from rewardpool_api.first_score import FirstScoreParts, FirstScoreStatus
from rewardpool_api.status import LoadStatus, ScalingStatus
from rewardpool_control.decide.drain import Drain
from rewardpool_control.decide.first_score import first_score
from rewardpool_control.snapshot import Download, Failure, Router, Snapshot, Worker

AT_ZERO = {"minReplicas": 0, "maxReplicas": 2, "policy": {"queueDepth": {"targetPerReplica": 8}}}
SILENCE = LoadStatus()
WAITS = LoadStatus(waiting=1)
COMES = {"running": False, "answering": False, "url": None, "age_seconds": 0}


def look(
    *workers: Worker,
    before: FirstScoreStatus | None = None,
    desired_before: int = 1,
    router: Router | None = None,
    at: float = 0.0,
    **spec: Any,
) -> Snapshot:
    scaling = ScalingStatus(desired=desired_before, reason="")
    status = RewardPoolStatus(scaling=scaling, first_score=before)
    pool = a_pool(status, **({"autoscaling": AT_ZERO} | spec))
    return a_snapshot(*workers, pool=pool, routers=(router or a_router(),), now=NOW + timedelta(seconds=at))


def seen(snapshot: Snapshot, *, load: LoadStatus | None = WAITS, desired: int = 1) -> FirstScoreStatus | None:
    return first_score(snapshot, load=load, desired=desired, leaving=Drain())


def under_way(waits_for: str, **parts: float) -> FirstScoreStatus:
    since, seconds = NOW, round(sum(parts.values()), 3)
    return FirstScoreStatus(since=since, seconds=seconds, parts=FirstScoreParts(**parts), waits_for=waits_for)


WAITING = a_router(waiting=1, waiting_seconds=0.25)


def test_it_begins_with_the_first_request_that_waits_at_zero() -> None:
    begun = seen(look(desired_before=0, router=WAITING))
    assert begun is not None
    assert (begun.waits_for, begun.seconds, begun.parts.decision) == ("Scheduling", 0.25, 0.25)
    assert begun.since == NOW - timedelta(seconds=0.25)


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(look(desired_before=0), id="nobody waits"),
        pytest.param(look(desired_before=1, router=WAITING), id="a replica was wanted before"),
        pytest.param(look(desired_before=0, router=a_router(waiting=None)), id="it is not known who waits"),
        pytest.param(look(desired_before=0, router=a_router(answering=False)), id="no router answers"),
        pytest.param(look(desired_before=0, router=WAITING, suspend=True), id="the pool is suspended"),
        pytest.param(look(desired_before=0, router=WAITING, autoscaling=None, replicas=0), id="its size is fixed"),
        pytest.param(
            look(a_worker("w"), desired_before=0, router=a_router(workers=(a_worker("w"),), waiting=1)),
            id="a replica that was to go still serves",
        ),
    ],
)
def test_it_does_not_begin_where(snapshot: Snapshot) -> None:
    assert seen(snapshot) is None


@pytest.mark.parametrize(
    ("worker", "part"),
    [
        (a_worker("w", placed=False, **COMES), "Scheduling"),
        (a_worker("w", unschedulable="0/1 nodes are available", **COMES), "Scheduling"),
        (a_worker("w", **COMES), "Pull"),
        (a_worker("w", download=Download(phase="Downloading", begun=NOW), **COMES), "Download"),
        (a_worker("w", answering=False, age_seconds=0), "Load"),
        (a_worker("w", restarts=1, failure=Failure(reason="EngineExited", message=""), **COMES), "Load"),
        (a_worker("w", age_seconds=0), "Answer"),
    ],
)
def test_the_replica_that_is_furthest_tells_what_is_waited_for(worker: Worker, part: str) -> None:
    slower = a_worker("slower", placed=False, **COMES)
    found = seen(look(worker, slower, before=under_way("Scheduling"), at=1.0))
    assert found is not None
    assert found.waits_for == part


def test_the_time_between_two_looks_goes_to_the_part_that_was_going_on() -> None:
    before = under_way("Load", decision=0.5, pull=1.0)
    found = seen(look(a_worker("w", age_seconds=0), before=before, at=4.0))
    assert found is not None
    assert (found.seconds, found.parts) == (4.0, FirstScoreParts(decision=0.5, pull=1.0, load=2.5))


def test_a_worker_that_dies_while_it_loads_is_still_loading() -> None:
    found = seen(look(a_worker("w", **COMES), before=under_way("Load", pull=1.0), at=3.0))
    assert found is not None
    assert (found.waits_for, found.parts.load) == ("Load", 2.0)


def answered(count: int | None, *, worker: Worker, waiting: int = 0) -> Router:
    (entry,) = a_router(workers=(worker,)).registered or ()
    changed = type(entry)(id=entry.id, url=entry.url, in_flight=0, answered=count)
    return a_router(registered=(changed,), waiting=waiting)


NEW = a_worker("w", age_seconds=-1)


@pytest.mark.parametrize(
    ("worker", "count", "load", "ends"),
    [
        pytest.param(NEW, 1, SILENCE, True, id="a router counted an answer"),
        pytest.param(NEW, 0, SILENCE, False, id="a caller pauses between two attempts"),
        pytest.param(NEW, None, SILENCE, False, id="the router does not say what was answered"),
        pytest.param(a_worker("w"), 9, WAITS, False, id="an older replica answered earlier"),
        pytest.param(a_worker("w"), 9, None, False, id="of an older replica nothing is known"),
        pytest.param(a_worker("w"), 9, SILENCE, True, id="an older replica has nothing in flight and nobody waits"),
        pytest.param(a_worker("w", answered=1), 9, WAITS, True, id="an older replica answered since the last look"),
    ],
)
def test_it_ends_with_the_first_answer(worker: Worker, count: int | None, load: LoadStatus | None, ends: bool) -> None:
    router = answered(count, worker=worker)
    found = seen(look(worker, before=under_way("Answer", load=1.0), router=router, at=1.5), load=load)
    assert found is not None
    assert (found.waits_for, found.parts.answer) == (None if ends else "Answer", 0.5)


def test_what_ended_stays_until_the_next_one_begins() -> None:
    ended = under_way("Answer", load=1.0).model_copy(update={"waits_for": None})
    assert seen(look(before=ended, desired_before=0), load=SILENCE, desired=0) == ended
    begun = seen(look(before=ended, desired_before=0, router=WAITING, at=60.0))
    assert begun is not None
    assert begun.seconds == 0.25


def test_a_caller_who_gives_up_leaves_none() -> None:
    assert seen(look(before=under_way("Load", load=1.0), at=2.0), load=SILENCE, desired=0) is None


def test_a_clock_that_is_set_back_takes_no_time_away() -> None:
    found = seen(look(before=under_way("Load", load=5.0), at=-60.0))
    assert found is not None
    assert found.seconds == 5.0


def test_a_stored_part_as_long_as_may_be_grows_no_further() -> None:
    before = under_way("Scheduling", scheduling=1e12).model_copy(update={"seconds": 0.0})
    now = seen(look(before=before, at=2.0))
    assert now is not None
    FirstScoreStatus.model_validate(now.model_dump())
    assert now.parts.scheduling == 1e12
