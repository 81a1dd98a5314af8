"""What counts as a repair of a router's list."""

from rewardpool_control.plan import Join, Leave
from rewardpool_control.snapshot import RegisteredWorker, Router
from rewardpool_operator.kubernetes.worker_list_drift import WorkerListDrift


def a_router(*urls: str) -> Router:
    registered = tuple(RegisteredWorker(id=url, url=url) for url in urls)
    return Router(name="r", answering=True, registered=registered)


def join(url: str) -> Join:
    return Join(router="r", worker_url=url)


def leave(url: str) -> Leave:
    return Leave(router="r", worker_id=url, worker_url=url)


def test_a_worker_that_joins_for_the_first_time_is_no_repair() -> None:
    memory = WorkerListDrift()
    memory.record([a_router()], now=0)
    assert not memory.is_repair(join("a"))


def test_a_worker_that_a_restarted_router_lost_is_one() -> None:
    memory = WorkerListDrift()
    memory.record([a_router("a")], now=0)
    memory.record([a_router()], now=0)
    assert memory.is_repair(join("a"))


def test_a_worker_that_is_still_on_its_way_onto_the_list_is_none() -> None:
    memory = WorkerListDrift()
    memory.record([a_router()], now=0)
    memory.done(join("a"))
    memory.record([a_router()], now=0)
    assert not memory.is_repair(join("a"))


def test_a_worker_that_leaves_and_comes_back_is_none() -> None:
    memory = WorkerListDrift()
    memory.record([a_router("a")], now=0)
    memory.done(leave("a"))
    memory.record([a_router()], now=0)
    assert not memory.is_repair(join("a"))


def test_an_address_that_somebody_else_put_there_is_one() -> None:
    memory = WorkerListDrift()
    memory.record([a_router("a")], now=0)
    memory.record([a_router("a", "intruder")], now=0)
    assert memory.is_repair(leave("intruder"))
    assert not memory.is_repair(leave("a"))


def test_a_router_that_is_gone_is_forgotten() -> None:
    memory = WorkerListDrift()
    memory.record([a_router("a")], now=0)
    memory.record([], now=0)
    memory.record([a_router()], now=0)
    assert not memory.is_repair(join("a"))


def test_a_router_that_does_not_answer_lost_nothing() -> None:
    memory = WorkerListDrift()
    memory.record([a_router("a")], now=0)
    memory.record([Router(name="r")], now=0)
    memory.record([a_router()], now=0)
    assert memory.is_repair(join("a"))


def test_a_router_is_late_from_when_a_worker_was_to_join_it_until_it_has_it() -> None:
    memory = WorkerListDrift()
    (fresh,) = memory.record([a_router()], now=10)
    memory.to_join([join("a")], now=10)
    (late,) = memory.record([a_router()], now=13)
    memory.to_join([join("a"), join("b")], now=13)
    (has_one,) = memory.record([a_router("a")], now=17)
    (has_both,) = memory.record([a_router("a", "b")], now=18)
    assert [router.late_seconds for router in (fresh, late, has_one, has_both)] == [0, 3, 4, 0]


def test_a_worker_that_is_not_to_join_any_more_makes_no_router_late() -> None:
    memory = WorkerListDrift()
    memory.to_join([join("a")], now=0)
    memory.to_join([], now=1)
    (router,) = memory.record([a_router()], now=100)
    assert router.late_seconds == 0
