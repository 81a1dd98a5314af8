"""GPU-seconds of a pool, divided between its jobs: all of them, once."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.autoscaler_builders import a_job
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import RewardPoolStatus
from rewardpool_api.costs import MAX_JOBS, CostStatus
from rewardpool_api.quantities import MAX_DURATION
from rewardpool_control.decide import decide
from rewardpool_control.decide.costs import costs

GPUS = 2


def at(seconds: float):
    return NOW + timedelta(seconds=seconds)


def looked(
    before: CostStatus | None = None,
    *,
    seconds: float,
    workers: int = 1,
    waiting: int = 0,
    gpus: int = GPUS,
    **scored: int,
) -> CostStatus | None:
    """The costs at a look, with what each job has announced by then."""
    pool = a_pool(RewardPoolStatus(costs=before), worker={"gpus": gpus})
    found = [a_worker(f"worker-{number}") for number in range(workers)]
    snapshot = a_snapshot(*found, routers=(a_router(waiting=waiting),), pool=pool, now=at(seconds))
    jobs = tuple(a_job(job=job, renewed=at(seconds), scored=count) for job, count in scored.items())
    return costs(replace(snapshot, announcements=jobs))


def after(*looks: dict) -> CostStatus:
    found = None
    for look in looks:
        found = looked(found, **look)
    assert found is not None
    return found


def parts(found: CostStatus) -> dict[str, float]:
    return {share.name: share.gpu_seconds for share in found.shares()}


IDLE = [{"seconds": 0}, {"seconds": 100, "waiting": 1}]
"""100 s without a request, and then one."""


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param(IDLE, {"(idle)": 200}, id="idle"),
        pytest.param([*IDLE, {"seconds": 140, "a": 5}], {"a": 80, "(idle)": 200}, id="one job has all of a window"),
        pytest.param(
            [*IDLE, {"seconds": 140, "a": 30, "b": 10}], {"a": 60, "b": 20, "(idle)": 200}, id="by samples scored"
        ),
        pytest.param([*IDLE, {"seconds": 120}], {"(other callers)": 40, "(idle)": 200}, id="no job announces samples"),
        pytest.param(
            [*IDLE, {"seconds": 150, "a": 0, "waiting": 1}],
            {"(idle)": 200, "(not attributed yet)": 100},
            id="a slow judge is waited for",
        ),
        pytest.param(
            [*IDLE, {"seconds": 140, "a": 9}, {"seconds": 150, "a": 4, "waiting": 1}, {"seconds": 170, "a": 4}],
            {"a": 140, "(idle)": 200},
            id="a job that was started again counts from the beginning",
        ),
    ],
)
def test_gpu_seconds_go_to(looks: list[dict], expected: dict[str, float]) -> None:
    found = parts(after(*looks))
    assert {name: value for name, value in found.items() if value} == pytest.approx(expected)


def test_samples_of_a_job_are_counted_over_its_restarts() -> None:
    found = after(*IDLE, {"seconds": 140, "a": 9}, {"seconds": 150, "a": 4})
    assert [(job.job, job.samples) for job in found.jobs] == [("a", 13)]


def test_a_job_that_was_started_again_while_the_pool_rested_counts_from_the_beginning() -> None:
    found = after({"seconds": 0, "a": 0}, {"seconds": 5, "a": 9}, {"seconds": 60, "a": 9}, {"seconds": 90, "a": 0})
    assert looked(found, seconds=95, a=0) is found
    assert [job.samples for job in (looked(found, seconds=100, a=12) or found).jobs] == [9 + 12]


def test_what_a_job_announced_before_the_counting_began_is_not_counted() -> None:
    assert after({"seconds": 0, "a": 1000}, {"seconds": 5, "a": 1003}).jobs[0].samples == 3


def test_a_pool_at_rest_has_the_same_costs_at_every_look() -> None:
    first = looked(seconds=0, a=7)
    assert looked(first, seconds=500, a=7) is first


def test_a_pool_without_gpus_has_no_costs() -> None:
    assert looked(seconds=0, gpus=0) is None


def test_a_worker_that_no_node_took_costs_nothing() -> None:
    snapshot = a_snapshot(replace(a_worker("a"), placed=False), pool=a_pool())
    found = costs(snapshot)
    assert found is not None
    assert found.gpus == 0


def test_a_decision_has_the_costs_in_its_status() -> None:
    found = decide(a_snapshot(a_worker("a"), pool=a_pool(replicas=1))).status.costs
    assert found is not None
    assert found.gpus == 1


def test_jobs_that_are_over_make_room_and_their_gpu_seconds_stay() -> None:
    looks = [{"seconds": 40.0 * number, "waiting": 1, f"j{number}": number} for number in range(MAX_JOBS + 9)]
    found = after(*looks)
    assert len(found.jobs) == MAX_JOBS
    assert parts(found)["(earlier jobs)"] > 0
    assert found.total(found.until) == pytest.approx(GPUS * 40.0 * (MAX_JOBS + 8))


def test_costs_are_never_more_than_the_schema_allows() -> None:
    largest = CostStatus(since=NOW, until=NOW, gpus=10**18, idle_gpu_seconds=MAX_DURATION)
    found = looked(largest, seconds=9, waiting=1)
    assert found is not None
    assert CostStatus.model_validate(found.model_dump()) == found


LOOKS = st.lists(
    st.fixed_dictionaries(
        {
            "pause": st.floats(0, 700),
            "workers": st.integers(0, 5),
            "waiting": st.sampled_from([0, 0, 7]),
            "scored": st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 10**6)),
        }
    ),
    min_size=1,
    max_size=12,
)


@given(LOOKS)
def test_jobs_others_and_idle_add_up_to_the_gpu_seconds_of_the_workers(looks: list[dict]) -> None:
    seconds = held = expected = 0.0
    found = None
    for look in looks:
        seconds += look["pause"]
        expected += held * look["pause"] if found is not None else 0.0
        held = GPUS * look["workers"]
        found = looked(found, seconds=seconds, workers=look["workers"], waiting=look["waiting"], **look["scored"])
    assert found is not None
    assert found.total(at(seconds)) == pytest.approx(expected, rel=0.01, abs=1e-3)


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    looks = [*IDLE, {"seconds": 110, "waiting": 1}]
    assert parts(after(*looks, {"seconds": 50, "waiting": 1})) == parts(after(*looks))


def test_a_pool_comes_to_rest_under_a_clock_that_was_set_back() -> None:
    found = after(*IDLE, {"seconds": -9000}, {"seconds": -8980})
    assert found.window is None
