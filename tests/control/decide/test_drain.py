"""Who leaves, and when it may be stopped."""

import pytest
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker, leaving

from rewardpool_control.decide import decide
from rewardpool_control.snapshot import Failure, RegisteredWorker, WorkerSet

TO_ONE = a_pool(replicas=1)


@pytest.mark.parametrize(
    ("workers", "victim"),
    [
        ((a_worker("busy", in_flight=3), a_worker("idle", in_flight=0)), "idle"),
        ((a_worker("old", age_seconds=500), a_worker("young", age_seconds=5)), "young"),
        ((a_worker("counts", in_flight=9), a_worker("silent", in_flight=None)), "counts"),
    ],
    ids=["the least busy", "then the newest", "an unknown count is a busy one"],
)
def test_the_victim_has_the_least_to_lose(workers, victim):
    assert decide(a_snapshot(*workers, pool=TO_ONE, routers=(a_router(),))).drain == (victim,)


def test_what_the_routers_hold_tells_how_busy_a_worker_is_that_does_not_say_itself():
    workers = (a_worker("busy", in_flight=None, age_seconds=1), a_worker("idle", in_flight=None))
    entries = tuple(
        RegisteredWorker(id=worker.name, url=worker.url, in_flight=2 if worker.name == "busy" else 0)
        for worker in workers
    )
    routers = (a_router("a", registered=entries), a_router("b", registered=entries))
    assert decide(a_snapshot(*workers, pool=TO_ONE, routers=routers)).drain == ("idle",)


def test_a_worker_that_never_answered_goes_first_and_at_once():
    plan = decide(a_snapshot(a_worker("good"), a_worker("new", answering=False), routers=(a_router(),), pool=TO_ONE))
    assert (plan.drain, plan.stop) == ((), ("new",))
    assert plan.worker_sets == (WorkerSet(revision="new", replicas=1),)


def test_a_victim_keeps_its_place_in_the_set_until_it_is_stopped():
    plan = decide(a_snapshot(a_worker("one"), a_worker("two"), pool=TO_ONE))
    assert plan.stop == ()
    assert plan.worker_sets[0].replicas == 2


STAYS = a_worker("stays")


@pytest.mark.parametrize(
    ("in_flight", "for_seconds", "listed", "stopped"),
    [
        (0, 3, False, True),
        (0, 1, False, False),
        (2, 30, False, False),
        (None, 30, False, False),
        (0, 30, True, False),
        (2, 61, False, True),
        (None, 61, True, True),
    ],
    ids=[
        "empty and out of the routers",
        "a request may still be on its way",
        "busy",
        "unknown is busy",
        "still listed",
        "the deadline passed",
        "the deadline passes for all",
    ],
)
def test_a_leaving_worker_is_stopped_when_it_is_empty_or_late(in_flight, for_seconds, listed, stopped):
    going = leaving(a_worker("going", in_flight=in_flight), for_seconds=for_seconds)
    routers = (a_router(workers=(STAYS, going) if listed else (STAYS,)),)
    plan = decide(a_snapshot(STAYS, going, routers=routers, pool=TO_ONE))
    assert plan.stop == (("going",) if stopped else ())
    assert plan.worker_sets[0].replicas == (1 if stopped else 2)


def test_a_router_that_cannot_be_asked_delays_the_stop():
    going = leaving(a_worker("going"), for_seconds=30)
    silent = a_router("b", answering=False, registered=None)
    routers = (a_router("a", workers=(STAYS,)), silent)
    assert decide(a_snapshot(STAYS, going, routers=routers, pool=TO_ONE)).stop == ()


@pytest.mark.parametrize(
    ("failure", "stopped"), [(None, True), (Failure(reason="RouterRefuses", message="401"), False)]
)
def test_a_leaving_router_delays_the_stop_where_it_answers_and_refuses(failure, stopped):
    going = leaving(a_worker("going"), for_seconds=30)
    leaves = a_router("b", answering=False, registered=None, deleting=True, failure=failure)
    routers = (a_router("a", workers=(STAYS,)), leaves)
    assert decide(a_snapshot(STAYS, going, routers=routers, pool=TO_ONE)).stop == (("going",) if stopped else ())


def test_a_leaving_worker_is_taken_back_before_a_new_one_is_started():
    going = leaving(a_worker("going"), for_seconds=30)
    plan = decide(a_snapshot(STAYS, going, routers=(a_router(workers=(STAYS,)),), pool=a_pool(replicas=2)))
    assert plan.undrain == ("going",)
    assert plan.worker_sets == (WorkerSet(revision="new", replicas=2),)
    assert [join.worker_url for join in plan.joins] == ["http://going:8000"]


@pytest.mark.parametrize(
    ("refused", "replicas"),
    [(None, 3), ("exceeded quota", 1)],
    ids=["made and not seen yet", "never made"],
)
def test_a_set_with_workers_that_are_not_seen_does_not_shrink_past_one_that_is_leaving(refused, replicas):
    sets = (WorkerSet(revision="new", replicas=3, created=NOW, refused=refused),)
    plan = decide(a_snapshot(a_worker("listed"), sets=sets, pool=a_pool(replicas=0)))
    assert plan.drain == ("listed",)
    assert plan.worker_sets[0].replicas == replicas


def test_a_set_with_workers_that_are_not_seen_shrinks_by_those_that_are_stopped():
    sets = (WorkerSet(revision="new", replicas=4, created=NOW),)
    going = leaving(a_worker("going"), for_seconds=30)
    routers = (a_router(workers=(STAYS,)),)
    plan = decide(a_snapshot(STAYS, going, routers=routers, sets=sets, pool=TO_ONE))
    assert (plan.stop, plan.worker_sets[0].replicas) == (("going",), 3)


def test_a_set_of_which_no_worker_stays_goes_to_zero_whatever_is_not_seen():
    sets = (WorkerSet(revision="new", replicas=3, created=NOW),)
    going = leaving(a_worker("going"), for_seconds=30)
    plan = decide(a_snapshot(going, routers=(a_router(),), sets=sets, pool=a_pool(replicas=0)))
    assert (plan.stop, plan.worker_sets[0].replicas) == (("going",), 0)


def test_a_deleted_pod_is_no_supply_so_the_set_keeps_its_size():
    plan = decide(a_snapshot(a_worker("one", deleting=True), a_worker("two"), pool=a_pool(replicas=2)))
    assert plan.worker_sets == (WorkerSet(revision="new", replicas=2),)


DOOMED = "EvictionByEvictionAPI: the node is drained"


def test_a_worker_that_is_about_to_be_evicted_leaves_the_routers_and_keeps_its_place_in_the_set():
    plan = decide(a_snapshot(a_worker("one", disruption_target=DOOMED), a_worker("two"), pool=a_pool(replicas=2)))
    assert [leave.worker_id for leave in plan.leaves] == ["id-one"]
    assert (plan.drain, plan.stop) == ((), ())
    assert plan.worker_sets == (WorkerSet(revision="new", replicas=2),)
    assert plan.status.ready_replicas == 1


def test_an_eviction_that_is_called_off_brings_the_worker_back():
    one = a_worker("one")
    plan = decide(a_snapshot(one, a_worker("two"), routers=(a_router(workers=(a_worker("two"),)),)))
    assert [join.worker_url for join in plan.joins] == [one.url]


def test_a_worker_that_goes_anyway_is_the_victim_and_still_finishes():
    doomed = a_worker("doomed", disruption_target=DOOMED, in_flight=7, age_seconds=500)
    plan = decide(a_snapshot(doomed, a_worker("idle"), pool=TO_ONE))
    assert (plan.drain, plan.stop) == (("doomed",), ())


def test_a_worker_whose_node_is_lost_leaves_the_routers_and_does_not_count():
    lost = a_worker("lost", running=False, answering=False)
    plan = decide(a_snapshot(lost, a_worker("two"), routers=(a_router(workers=(lost, a_worker("two"))),)))
    assert [leave.worker_id for leave in plan.leaves] == ["id-lost"]
    assert plan.status.ready_replicas == 1


def test_a_deleted_pod_on_a_lost_node_does_not_stop_a_rollout():
    stuck = a_worker("stuck", revision="old", running=False, answering=False, deleting=True)
    old = a_worker("old-0", revision="old")
    pool = a_pool(replicas=1, rollout={"strategy": "Replace"})
    assert decide(a_snapshot(stuck, old, pool=pool)).drain == ("old-0",)


def test_a_suspended_pool_lets_everybody_finish():
    plan = decide(a_snapshot(a_worker("one", in_flight=5), pool=a_pool(replicas=1, suspend=True)))
    assert plan.drain == ("one",)
    assert plan.status.scaling.reason == "spec.suspend is set"


def test_the_decision_is_the_same_after_a_restart():
    snapshot = a_snapshot(a_worker("one"), leaving(a_worker("two"), for_seconds=1), pool=TO_ONE, now=NOW)
    assert decide(snapshot) == decide(snapshot)


def test_a_worker_that_no_node_has_goes_before_one_that_starts():
    starting = a_worker("starting", answering=False, age_seconds=1)
    pending = a_worker("pending", answering=False, running=False, url=None, age_seconds=9, unschedulable="no room")
    plan = decide(a_snapshot(starting, pending, pool=a_pool(replicas=1), routers=(a_router(),)))
    assert plan.stop == ("pending",)
