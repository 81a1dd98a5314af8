"""When trainers may be sent to a router, by table."""

import pytest
from support.decide_builders import a_router, a_snapshot, a_worker

from rewardpool_operator.decide import decide
from rewardpool_operator.snapshot import Router, Worker

WORKER = a_worker("w0")


@pytest.mark.parametrize(
    ("router", "workers", "exposed"),
    [
        pytest.param(a_router(workers=(WORKER,), exposed=False), (WORKER,), True, id="it has every worker"),
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
    ],
)
def test_a_router_is_exposed_once_its_list_is_right(router: Router, workers: tuple[Worker, ...], exposed: bool) -> None:
    plan = decide(a_snapshot(*workers, routers=(router,)))
    assert plan.expose == (("router",) if exposed else ())
