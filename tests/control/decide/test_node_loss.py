"""Workers of nodes that do not report: the routers know whether they are there."""

import pytest
from support.decide_builders import a_router, a_snapshot, a_worker

from rewardpool_control.decide import decide
from rewardpool_control.snapshot import Failure, RegisteredWorker, Router, Worker

TWO = a_worker("two")


def unreachable(name: str, **further: object) -> Worker:
    lost = Failure(reason="NodeLost", message="node n does not report how the pod is")
    return a_worker(name, node_unreachable=True, failure=lost, **further)


def a_router_that_reaches(*workers: Worker, healthy: bool | None) -> Router:
    entries = [
        RegisteredWorker(id=f"id-{one.name}", url=one.url or "", in_flight=0, healthy=healthy) for one in workers
    ]
    return a_router(registered=tuple(entries))


def left(*workers: Worker, healthy: bool | None) -> list[str]:
    router = a_router_that_reaches(*workers, healthy=healthy)
    return [leave.worker_id for leave in decide(a_snapshot(*workers, routers=(router,))).leaves]


@pytest.mark.parametrize("healthy", [False, None])
def test_a_silent_worker_that_no_router_reaches_leaves(healthy: bool | None) -> None:
    assert left(unreachable("one"), TWO, healthy=healthy) == ["id-one"]


def test_a_silent_worker_that_a_router_reaches_stays_and_serves() -> None:
    workers = (unreachable("one"), unreachable("two"))
    plan = decide(a_snapshot(*workers, routers=(a_router_that_reaches(*workers, healthy=True),)))
    assert plan.leaves == ()
    assert plan.status.ready_replicas == 2
    degraded = plan.status.condition("Degraded")
    assert degraded is not None
    assert degraded.status == "False"


def test_a_silent_worker_that_was_told_to_go_leaves_though_it_is_reached() -> None:
    assert left(unreachable("one", deleting=True), healthy=True) == ["id-one"]


def test_a_pool_whose_workers_nobody_reaches_says_why() -> None:
    one = unreachable("one")
    plan = decide(a_snapshot(one, routers=(a_router_that_reaches(one, healthy=False),)))
    serving = plan.status.condition("Serving")
    assert serving is not None
    assert (serving.status, serving.reason) == ("False", "NodeLost")
