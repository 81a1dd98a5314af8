"""What counts as a repair of a router's list."""

from rewardpool_operator.kubernetes.repairs import ListMemory
from rewardpool_operator.plan import Join, Leave
from rewardpool_operator.snapshot import RegisteredWorker, Router


def a_router(*urls: str) -> Router:
    registered = tuple(RegisteredWorker(id=url, url=url) for url in urls)
    return Router(name="r", answering=True, registered=registered)


def join(url: str) -> Join:
    return Join(router="r", worker_url=url)


def leave(url: str) -> Leave:
    return Leave(router="r", worker_id=url, worker_url=url)


def test_a_worker_that_joins_for_the_first_time_is_no_repair() -> None:
    memory = ListMemory()
    memory.see([a_router()])
    assert not memory.is_repair(join("a"))


def test_a_worker_that_a_restarted_router_lost_is_one() -> None:
    memory = ListMemory()
    memory.see([a_router("a")])
    memory.see([a_router()])
    assert memory.is_repair(join("a"))


def test_a_worker_that_is_still_on_its_way_onto_the_list_is_none() -> None:
    memory = ListMemory()
    memory.see([a_router()])
    memory.done(join("a"))
    memory.see([a_router()])
    assert not memory.is_repair(join("a"))


def test_a_worker_that_leaves_and_comes_back_is_none() -> None:
    memory = ListMemory()
    memory.see([a_router("a")])
    memory.done(leave("a"))
    memory.see([a_router()])
    assert not memory.is_repair(join("a"))


def test_an_address_that_somebody_else_put_there_is_one() -> None:
    memory = ListMemory()
    memory.see([a_router("a")])
    memory.see([a_router("a", "intruder")])
    assert memory.is_repair(leave("intruder"))
    assert not memory.is_repair(leave("a"))


def test_a_router_that_is_gone_is_forgotten() -> None:
    memory = ListMemory()
    memory.see([a_router("a")])
    memory.see([])
    memory.see([a_router()])
    assert not memory.is_repair(join("a"))


def test_a_router_that_does_not_answer_lost_nothing() -> None:
    memory = ListMemory()
    memory.see([a_router("a")])
    memory.see([Router(name="r")])
    memory.see([a_router()])
    assert memory.is_repair(join("a"))
