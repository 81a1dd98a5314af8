"""Which routers trainers are sent to, by table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decide_builders import a_router, a_snapshot, a_worker

from rewardpool_control.decide import decide
from rewardpool_control.decide.router_readiness import PATIENCE_SECONDS
from rewardpool_control.snapshot import Router, Worker

WORKER = a_worker("w0")
LATE = PATIENCE_SECONDS
RIGHT = a_router("right", workers=(WORKER,))


@pytest.mark.parametrize(
    ("router", "workers", "exposed"),
    [
        pytest.param(a_router(workers=(WORKER,), exposed=False), (WORKER,), True, id="it has every worker"),
        pytest.param(
            a_router(workers=(WORKER,), exposed=False, concealed=True), (WORKER,), True, id="it has them again"
        ),
        pytest.param(a_router(exposed=False), (WORKER,), False, id="its list is empty"),
        pytest.param(a_router(exposed=False), (), True, id="there is no worker to have"),
        pytest.param(
            a_router(exposed=False), (a_worker("w0", answering=False),), True, id="the only worker is starting"
        ),
        pytest.param(a_router(workers=(WORKER,)), (WORKER,), False, id="it was exposed before"),
        pytest.param(a_router(), (WORKER,), False, id="it was exposed before and lost its list"),
        pytest.param(Router(name="router", exposed=False), (), False, id="it does not answer"),
        pytest.param(a_router(exposed=False, registered=None), (), False, id="its list could not be read"),
        pytest.param(a_router(exposed=False, deleting=True), (), False, id="it is on its way out"),
        pytest.param(
            a_router(workers=(WORKER,), exposed=False, silent_seconds=LATE),
            (WORKER,),
            False,
            id="its list is an old one",
        ),
    ],
)
def test_a_router_is_exposed_once_its_list_is_right(router: Router, workers: tuple[Worker, ...], exposed: bool) -> None:
    plan = decide(a_snapshot(*workers, routers=(router,)))
    assert plan.expose == (("router",) if exposed else ())


@pytest.mark.parametrize(
    ("router", "concealed"),
    [
        pytest.param(a_router("r", late_seconds=LATE), True, id="its list stays empty"),
        pytest.param(a_router("r", late_seconds=LATE - 1), False, id="it just lost its list"),
        pytest.param(a_router("r", workers=(WORKER,), late_seconds=LATE), False, id="it has every worker"),
        pytest.param(Router(name="r", silent_seconds=LATE), True, id="it is silent"),
        pytest.param(Router(name="r", silent_seconds=1.0), False, id="it missed one question"),
        pytest.param(a_router("r", workers=(WORKER,), silent_seconds=LATE), True, id="its last answer is old"),
        pytest.param(Router(name="r", silent_seconds=LATE, exposed=False, concealed=True), False, id="it is already"),
        pytest.param(Router(name="r", silent_seconds=LATE, deleting=True), False, id="it is on its way out"),
    ],
)
def test_a_router_whose_list_is_wrong_for_a_while_is_concealed(router: Router, concealed: bool) -> None:
    plan = decide(a_snapshot(WORKER, routers=(RIGHT, router)))
    assert plan.conceal == (("r",) if concealed else ())


@pytest.mark.parametrize(
    "others",
    [
        pytest.param((), id="there is no other one"),
        pytest.param((Router(name="b", silent_seconds=LATE),), id="the other one is silent too"),
        pytest.param((a_router("b"),), id="the other one has no worker"),
        pytest.param((a_router("b", workers=(WORKER,), exposed=False),), id="trainers are not sent to the other one"),
        pytest.param((a_router("b", workers=(WORKER,), deleting=True),), id="the other one is on its way out"),
    ],
)
def test_the_last_router_is_never_concealed(others: tuple[Router, ...]) -> None:
    silent = Router(name="a", silent_seconds=10 * LATE)
    assert decide(a_snapshot(WORKER, routers=(silent, *others))).conceal == ()


def test_the_routers_of_a_pool_at_zero_stay_exposed() -> None:
    silent = Router(name="a", silent_seconds=10 * LATE)
    assert decide(a_snapshot(routers=(silent, a_router("b")))).conceal == ()


ROUTERS = st.builds(
    a_router,
    st.sampled_from("abcd"),
    workers=st.sampled_from([(), (WORKER,)]),
    answering=st.booleans(),
    exposed=st.booleans(),
    deleting=st.booleans(),
    silent_seconds=st.floats(0, 100),
    late_seconds=st.floats(0, 100),
)


@given(routers=st.lists(ROUTERS, max_size=4, unique_by=lambda router: router.name))
def test_a_pool_that_trainers_reach_stays_one(routers: list[Router]) -> None:
    plan = decide(a_snapshot(WORKER, routers=tuple(routers)))
    staying = {router.name for router in routers if router.exposed and not router.deleting}
    assert staying - set(plan.conceal) or not staying
    assert not set(plan.conceal) & set(plan.expose)
