"""What the routers hold, and when that is unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decide_builders import a_pool, a_router, a_snapshot, a_worker

from rewardpool_api.status import LoadStatus, RewardPoolStatus
from rewardpool_operator.autoscaler.signals import STALE_SECONDS
from rewardpool_operator.decide import decide
from rewardpool_operator.decide.load import missing_figures, observed_load
from rewardpool_operator.snapshot import RegisteredWorker, Router

QUEUE = {
    "minReplicas": 0,
    "maxReplicas": 8,
    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}},
    "scaleDown": {"stabilizationSeconds": 0},
    "idleSeconds": 0,
}


def a_busy_router(name: str, in_flight: int | None = 3, waiting: int | None = 1, age_seconds: float = 0.1) -> Router:
    entries = (RegisteredWorker(id="a", url="http://a:8000", in_flight=in_flight),)
    return a_router(name, registered=entries, waiting=waiting, age_seconds=age_seconds)


STALE = a_busy_router("b", age_seconds=STALE_SECONDS + 0.1)
BROKEN = [
    pytest.param(a_router("b", answering=False, registered=None), "router b does not answer", id="silent"),
    pytest.param(a_router("b", registered=None), "router b does not answer", id="no list"),
    pytest.param(a_busy_router("b", None), "router b does not say how many requests are at http://a:8000", id="worker"),
    pytest.param(a_busy_router("b", waiting=None), "router b does not say how many requests wait", id="waiting"),
    pytest.param(STALE, "router b has given no figures for more than 10 s", id="stale"),
    pytest.param(a_busy_router("b", age_seconds=float("nan")), "router b has given no figures", id="an age of NaN"),
]


def test_the_load_is_summed_over_routers() -> None:
    snapshot = a_snapshot(routers=(a_busy_router("a", 3, 1), a_busy_router("b", 4, 2)))
    assert observed_load(snapshot) == LoadStatus(in_flight=7, waiting=3)


@pytest.mark.parametrize(("broken", "message"), BROKEN)
def test_a_missing_figure_makes_the_load_missing_not_smaller(broken: Router, message: str) -> None:
    snapshot = a_snapshot(routers=(a_busy_router("a"), broken))
    assert observed_load(snapshot) is None
    assert (missing_figures(snapshot) or "").startswith(message)


def test_a_router_that_is_going_away_is_not_waited_for() -> None:
    leaving = a_router("b", answering=False, registered=None, deleting=True)
    assert observed_load(a_snapshot(routers=(a_busy_router("a"), leaving))) == LoadStatus(in_flight=3, waiting=1)


def test_without_any_router_nothing_is_known() -> None:
    assert missing_figures(a_snapshot(routers=())) == "there is no router"


@pytest.mark.parametrize(("broken", "message"), BROKEN)
def test_missing_figures_hold_the_size_and_the_condition_says_which(broken: Router, message: str) -> None:
    workers = tuple(a_worker(f"new-{number}") for number in range(4))
    pool = a_pool(
        autoscaling=QUEUE, status=RewardPoolStatus.model_validate({"scaling": {"desired": 4, "reason": "before"}})
    )
    plan = decide(a_snapshot(*workers, pool=pool, routers=(a_router("a", workers=workers), broken)))
    condition = plan.status.condition("ScalingActive")
    assert plan.status.scaling is not None
    assert plan.status.scaling.desired == 4
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "FiguresMissing")
    assert condition.message.startswith(message)


figures = st.one_of(st.none(), st.integers(0, 100))


@given(
    routers=st.lists(st.builds(a_busy_router, st.just("r"), figures, figures, st.floats(0, 30)), min_size=1),
    before=st.integers(1, 8),
)
def test_no_router_with_old_or_missing_figures_ever_shrinks_a_pool(routers: list[Router], before: int) -> None:
    workers = tuple(a_worker(f"new-{number}") for number in range(before))
    status = RewardPoolStatus.model_validate({"scaling": {"desired": before, "reason": "before"}})
    snapshot = a_snapshot(*workers, pool=a_pool(autoscaling=QUEUE, status=status), routers=tuple(routers))
    scaling = decide(snapshot).status.scaling
    assert scaling is not None
    assert scaling.desired >= before or missing_figures(snapshot) is None
