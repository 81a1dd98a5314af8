"""Routers' worker lists follow the workers."""

from support.decide_builders import a_pool, a_router, a_snapshot, a_worker, leaving

from rewardpool_control.decide import decide

ONE, TWO = a_worker("one"), a_worker("two")


def joined(snapshot):
    return {(join.router, join.worker_url) for join in decide(snapshot).joins}


def left(snapshot):
    return {(leave.router, leave.worker_id) for leave in decide(snapshot).leaves}


def test_a_worker_that_answers_joins_every_router():
    routers = (a_router("a"), a_router("b", workers=(ONE,)))
    assert joined(a_snapshot(ONE, routers=routers)) == {("a", "http://one:8000")}


def test_a_worker_that_has_not_answered_does_not_join():
    assert joined(a_snapshot(a_worker("one", answering=False), routers=(a_router(),))) == set()


def test_a_restarted_router_gets_the_whole_list_again():
    assert len(joined(a_snapshot(ONE, TWO, routers=(a_router(),)))) == 2


def test_an_address_that_belongs_to_no_worker_leaves():
    assert left(a_snapshot(ONE, routers=(a_router(workers=(ONE, TWO)),))) == {("router", "id-two")}


def test_a_worker_whose_process_died_leaves_every_router():
    dead = a_worker("one", running=False, answering=False)
    assert left(a_snapshot(dead, routers=(a_router("a", workers=(dead,)), a_router("b", workers=(dead,))))) == {
        ("a", "id-one"),
        ("b", "id-one"),
    }


def test_a_worker_that_somebody_deletes_leaves():
    assert left(a_snapshot(a_worker("one", deleting=True))) == {("router", "id-one")}


def test_a_listed_worker_that_is_slow_to_answer_a_probe_stays():
    busy = a_worker("one", answering=False)
    assert left(a_snapshot(busy, routers=(a_router(workers=(busy,)),))) == set()


def test_a_victim_leaves_the_routers_in_the_pass_that_chose_it():
    assert left(a_snapshot(ONE, TWO, pool=a_pool(replicas=1))) != set()


def test_a_router_whose_list_is_unknown_is_left_alone():
    silent = a_router(answering=False, registered=None, waiting=None)
    plan = decide(a_snapshot(ONE, routers=(silent,)))
    assert (plan.joins, plan.leaves) == ((), ())


def test_a_router_that_is_being_deleted_takes_nobody_and_still_forgets():
    going = a_router(workers=(TWO,), deleting=True)
    snapshot = a_snapshot(ONE, routers=(going,))
    assert joined(snapshot) == set()
    assert left(snapshot) == {("router", "id-two")}


def test_a_drained_worker_does_not_come_back_to_a_router():
    gone = leaving(TWO, for_seconds=5)
    snapshot = a_snapshot(ONE, gone, routers=(a_router(workers=(ONE,)),), pool=a_pool(replicas=1))
    assert joined(snapshot) == set()


def test_a_pool_stays_ready_while_another_router_starts():
    routers = (a_router("a", workers=(ONE,)), a_router("b", exposed=False))
    assert decide(a_snapshot(ONE, routers=routers)).status.ready_replicas == 1


def test_a_pool_is_not_ready_before_its_first_router_has_the_list():
    assert decide(a_snapshot(ONE, routers=(a_router(exposed=False),))).status.ready_replicas == 0
