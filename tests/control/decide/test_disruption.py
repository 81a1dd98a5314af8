"""How many pods a node's drain may not take, by table."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decide_builders import a_pool, a_router, a_snapshot, a_worker

from rewardpool_control.decide import decide
from rewardpool_control.decide.disruption import protected_gateways, protected_routers, protected_workers
from rewardpool_control.snapshot import Failure, Gateway, Router, Worker

NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
CRASH = Failure(reason="EngineExited", message="exit code 1")


def serving(count: int) -> list[Worker]:
    return [a_worker(f"serving-{number}") for number in range(count)]


def starting(count: int, **fields: Any) -> list[Worker]:
    return [a_worker(f"starting-{number}", answering=False, **fields) for number in range(count)]


@pytest.mark.parametrize(
    ("workers", "before", "protected"),
    [
        pytest.param([*serving(8), *starting(8, unschedulable=NO_GPU)], None, 8, id="half of what is wanted is placed"),
        pytest.param([*serving(8), *starting(8, unschedulable=NO_GPU)], 16, 8, id="the others lost their place"),
        pytest.param([*serving(1), *starting(15)], 1, 1, id="a pool that grows"),
        pytest.param([*serving(4), *starting(4)], 4, 4, id="a surge whose new workers load"),
        pytest.param([*serving(7), a_worker("taken", deleting=True)], 8, 8, id="one was taken and ends"),
        pytest.param([*serving(7), *starting(1)], 8, 8, id="another one starts in its place"),
        pytest.param([*serving(7), *starting(1, unschedulable=NO_GPU)], 8, 7, id="there is no place for another one"),
        pytest.param([*serving(7), *starting(1, failure=CRASH)], 8, 7, id="the other one does not come up"),
        pytest.param([*serving(3), *starting(1, node_unreachable=True)], 4, 3, id="a node was lost"),
        pytest.param(serving(2), 8, 2, id="a smaller pool"),
        pytest.param([], 8, 0, id="a pool at zero"),
    ],
)
def test_of_what_serves_one_may_be_taken(workers: list[Worker], before: int | None, protected: int) -> None:
    snapshot = replace(a_snapshot(*workers, pool=a_pool(replicas=16)), protected_workers=before)
    assert protected_workers(snapshot) == protected


@pytest.mark.parametrize(
    ("routers", "protected"),
    [
        pytest.param((a_router("a"), Router(name="b", exposed=False, failure=CRASH)), 1, id="one has no place"),
        pytest.param((a_router("a"), a_router("b", exposed=False)), 2, id="one was taken, another one gets its list"),
        pytest.param((a_router("a"), a_router("b")), 2, id="both serve"),
    ],
)
def test_of_routers_that_serve_one_may_be_taken(routers: tuple[Router, ...], protected: int) -> None:
    assert protected_routers(replace(a_snapshot(routers=routers), protected_routers=2)) == protected


@pytest.mark.parametrize(
    ("gateway", "before", "protected"),
    [
        pytest.param(None, 2, 0, id="none"),
        pytest.param(Gateway(url="", wanted=1, ready=1), None, 1, id="one, which may be taken"),
        pytest.param(Gateway(url="", wanted=2, ready=2), None, 2, id="both answer"),
        pytest.param(Gateway(url="", wanted=2, ready=1), 2, 2, id="one was taken and another one starts"),
        pytest.param(Gateway(url="", wanted=2, ready=1, failure=CRASH), 2, 1, id="one does not come up"),
    ],
)
def test_of_gateways_that_answer_one_may_be_taken(gateway: Gateway | None, before: int | None, protected: int) -> None:
    snapshot = replace(a_snapshot(), gateway=gateway, protected_gateways=before)
    assert protected_gateways(snapshot) == decide(snapshot).protected_gateways == protected


@given(
    served=st.integers(0, 9), placed=st.integers(0, 9), pending=st.integers(0, 9), before=st.none() | st.integers(0, 40)
)
def test_what_serves_is_protected_and_what_has_no_place_never_is(
    served: int, placed: int, pending: int, before: int | None
) -> None:
    waiting = [replace(one, name=f"pending-{one.name}") for one in starting(pending, unschedulable=NO_GPU)]
    snapshot = a_snapshot(*serving(served), *starting(placed), *waiting)
    plan = decide(replace(snapshot, protected_workers=before))
    assert served <= plan.protected_workers <= served + placed
