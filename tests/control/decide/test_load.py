"""What the routers hold, and when that is unknown."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.autoscaler_builders import a_job
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_api.status import LoadStatus, RewardPoolStatus
from rewardpool_control.autoscaler.signals import STALE_SECONDS
from rewardpool_control.decide import decide
from rewardpool_control.decide.load import least_load, missing_metrics, observed_load
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import RegisteredWorker, Router

QUEUE = {
    "minReplicas": 0,
    "maxReplicas": 8,
    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}},
    "scaleDown": {"stabilizationWindowSeconds": 0},
    "cooldownSeconds": 0,
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
    pytest.param(STALE, "router b has given no metrics for more than 10 s", id="stale"),
    pytest.param(a_busy_router("b", age_seconds=float("nan")), "router b has given no metrics", id="an age of NaN"),
]


def test_the_load_is_summed_over_routers() -> None:
    snapshot = a_snapshot(routers=(a_busy_router("a", 3, 1), a_busy_router("b", 4, 2)))
    assert observed_load(snapshot) == LoadStatus(in_flight=7, waiting=3)


def test_requests_have_the_tokens_that_the_jobs_announce() -> None:
    jobs = (a_job(job="a", renewed=NOW, tokensPerSample=8192, samplesPerRequest=2), a_job(job="b", renewed=NOW))
    load = observed_load(replace(a_snapshot(routers=(a_busy_router("a", 3, 1),)), announcements=jobs))
    assert load is not None
    assert (load.tokens_per_request, load.tokens_in_flight, load.tokens_waiting) == (12_288, 36_864, 12_288)


@pytest.mark.parametrize(("broken", "message"), BROKEN)
def test_a_missing_metric_makes_the_load_missing_not_smaller(broken: Router, message: str) -> None:
    snapshot = a_snapshot(routers=(a_busy_router("a"), broken))
    assert observed_load(snapshot) is None
    assert (missing_metrics(snapshot) or "").startswith(message)


@pytest.mark.parametrize(
    ("silent", "least"),
    [
        pytest.param(a_router("b", answering=False, registered=None), LoadStatus(in_flight=3, waiting=1), id="silent"),
        pytest.param(STALE, LoadStatus(in_flight=3, waiting=1), id="stale"),
        pytest.param(a_busy_router("b", None, 4), LoadStatus(in_flight=3, waiting=5), id="does not say what is where"),
    ],
)
def test_what_the_others_say_is_the_least_there_is(silent: Router, least: LoadStatus) -> None:
    assert least_load(a_snapshot(routers=(a_busy_router("a"), silent))) == least


def test_every_silent_router_is_named() -> None:
    silent = tuple(a_router(name, answering=False, registered=None) for name in "abcde")
    expected = "router a does not answer; router b does not answer; router c does not answer, and 2 more routers"
    assert missing_metrics(a_snapshot(routers=silent)) == expected


def test_a_router_that_trainers_were_never_sent_to_is_not_waited_for() -> None:
    pending = Router(name="b", exposed=False)
    assert observed_load(a_snapshot(routers=(a_busy_router("a"), pending))) == LoadStatus(in_flight=3, waiting=1)


def test_a_router_that_trainers_are_not_sent_to_any_more_may_have_what_came_before() -> None:
    concealed = Router(name="b", exposed=False, concealed=True)
    assert missing_metrics(a_snapshot(routers=(a_busy_router("a"), concealed))) == "router b does not answer"


def test_a_pool_at_zero_grows_by_what_waits_at_one_router_while_the_other_one_is_silent() -> None:
    pool = a_pool(
        autoscaling=QUEUE, status=RewardPoolStatus.model_validate({"scaling": {"desired": 0, "reason": "before"}})
    )
    silent = a_router("b", answering=False, registered=None, silent_seconds=20.0)
    plan = decide(a_snapshot(pool=pool, routers=(a_router("a", waiting=50), silent)))
    active, degraded = plan.status.condition("ScalingActive"), plan.status.condition("Degraded")
    assert plan.status.scaling is not None
    assert active is not None
    assert degraded is not None
    assert plan.status.scaling.desired == 5
    assert active.message == "router b does not answer, so the size may grow and not shrink"
    assert (degraded.status, degraded.reason) == ("True", "RouterSilent")
    assert degraded.message == "router b does not answer the operator; until it does, the size may grow and not shrink"


def at_zero_without_metrics(seconds: float, *, spec: dict[str, Any] | None = None, waiting: int | None = None) -> Plan:
    """The decision after so long without the metrics of the one router, whose list can be read."""
    since = NOW - timedelta(seconds=seconds)
    active = {"type": "ScalingActive", "status": "False", "reason": "MetricsUnavailable", "lastTransitionTime": since}
    status = {"scaling": {"desired": 0, "reason": "before"}, "conditions": [active]}
    pool = a_pool(RewardPoolStatus.model_validate(status), autoscaling=QUEUE, **(spec or {}))
    return decide(a_snapshot(pool=pool, routers=(a_router("a", waiting=waiting),)))


def test_a_pool_at_zero_whose_routers_metrics_cannot_be_had_is_degraded_and_not_ready() -> None:
    status = at_zero_without_metrics(30).status
    degraded, ready = status.condition("Degraded"), status.condition("Ready")
    assert degraded is not None
    assert ready is not None
    assert (degraded.status, degraded.reason) == ("True", "MetricsUnavailable")
    assert (ready.status, ready.reason) == ("False", "MetricsUnavailable")
    assert degraded.message == ready.message
    assert degraded.message.startswith("router a does not say how many requests wait: no request there wakes the pool")


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(at_zero_without_metrics(29), id="for a moment"),
        pytest.param(at_zero_without_metrics(60, waiting=0), id="they are there again"),
        pytest.param(at_zero_without_metrics(60, spec={"suspend": True}), id="suspended"),
    ],
)
def test_metrics_that_are_not_missing_for_long_or_not_needed_degrade_no_pool(plan: Plan) -> None:
    degraded, ready = plan.status.condition("Degraded"), plan.status.condition("Ready")
    assert degraded is not None
    assert ready is not None
    assert (degraded.status, ready.status) == ("False", "True")


def test_a_router_that_is_going_away_is_not_waited_for() -> None:
    leaving = a_router("b", answering=False, registered=None, deleting=True)
    assert observed_load(a_snapshot(routers=(a_busy_router("a"), leaving))) == LoadStatus(in_flight=3, waiting=1)


def test_without_any_router_nothing_is_known() -> None:
    assert missing_metrics(a_snapshot(routers=())) == "there is no router"


@pytest.mark.parametrize(("broken", "message"), BROKEN)
def test_missing_metrics_hold_the_size_and_the_condition_says_which(broken: Router, message: str) -> None:
    workers = tuple(a_worker(f"new-{number}") for number in range(4))
    pool = a_pool(
        autoscaling=QUEUE, status=RewardPoolStatus.model_validate({"scaling": {"desired": 4, "reason": "before"}})
    )
    plan = decide(a_snapshot(*workers, pool=pool, routers=(a_router("a", workers=workers), broken)))
    condition = plan.status.condition("ScalingActive")
    assert plan.status.scaling is not None
    assert plan.status.scaling.desired == 4
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "MetricsUnavailable")
    assert condition.message.startswith(message)


counts = st.one_of(st.none(), st.integers(0, 100))


@given(
    routers=st.lists(st.builds(a_busy_router, st.just("r"), counts, counts, st.floats(0, 30)), min_size=1),
    before=st.integers(1, 8),
)
def test_no_router_with_old_or_missing_metrics_ever_shrinks_a_pool(routers: list[Router], before: int) -> None:
    workers = tuple(a_worker(f"new-{number}") for number in range(before))
    status = RewardPoolStatus.model_validate({"scaling": {"desired": before, "reason": "before"}})
    snapshot = a_snapshot(*workers, pool=a_pool(autoscaling=QUEUE, status=status), routers=tuple(routers))
    scaling = decide(snapshot).status.scaling
    assert scaling is not None
    assert scaling.desired >= before or missing_metrics(snapshot) is None


@given(
    loads=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=2, max_size=4),
    silent=st.sets(st.integers(0, 3), min_size=1),
    before=st.integers(0, 8),
)
def test_whichever_routers_are_silent_the_size_is_between_the_present_one_and_that_of_full_knowledge(
    loads: list[tuple[int, int]], silent: set[int], before: int
) -> None:
    workers = tuple(a_worker(f"new-{number}") for number in range(before))
    status = RewardPoolStatus.model_validate({"scaling": {"desired": before, "reason": "before"}})
    pool = a_pool(autoscaling=QUEUE, status=status)

    def size(missing: set[int]) -> int:
        routers = tuple(
            a_router(f"r{number}", answering=False, registered=None)
            if number in missing
            else a_busy_router(f"r{number}", in_flight, waiting)
            for number, (in_flight, waiting) in enumerate(loads)
        )
        scaling = decide(a_snapshot(*workers, pool=pool, routers=routers)).status.scaling
        assert scaling is not None
        return scaling.desired

    missing = {number for number in silent if number < len(loads)} or {0}
    assert before <= size(missing) <= max(before, size(set()))
