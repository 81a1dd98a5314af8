"""Several pools on one budget: jobs that ask all of them, and a fixed fleet beside."""

import pytest

from rewardpool_simulator import pool_policy
from rewardpool_simulator.shared import SharedTrace, compare_shared, load_shared, run_shared

FLEET = {"maxReplicas": 4, "startSeconds": {"seconds": 20}, "serviceSeconds": {"seconds": 1}, "concurrency": 4}
JOB = {
    "name": "job",
    "startsAtSeconds": 60,
    "loadSeconds": 60,
    "steps": 4,
    "samples": 60,
    "rolloutSeconds": {"seconds": 40},
    "arrivals": "Spread",
    "updateSeconds": {"seconds": 200},
}


def trace(
    *, budget=12, jobs=(), pools=("maths", "code", "judge"), asks=({"maths": 1, "code": 1}, {"judge": 1}), **given
):
    return SharedTrace.model_validate(
        {
            "seconds": 1200,
            "budget": budget,
            "pools": [{"name": name, "fleet": FLEET, "tokensPerSecond": 1000, **given} for name in pools],
            "jobs": [{**JOB, "asks": list(asks), **job} for job in jobs or ({},)],
        }
    )


def test_each_sample_is_answered_by_a_pool_of_each_entry():
    done = run_shared(trace())
    assert done.finished
    assert done.answered == 4 * 60 * 2
    assert all(one.gpu_seconds for one in done.pools)


def test_a_run_with_the_same_seed_is_the_same_and_with_another_one_is_not():
    assert run_shared(trace()) == run_shared(trace())
    assert run_shared(trace()) != run_shared(trace(), seed=1)


@pytest.mark.parametrize("budget", [12, 6, 3])
def test_all_pools_together_stay_within_the_budget_and_the_jobs_end(budget):
    done = run_shared(trace(budget=budget, jobs=[{}, {"name": "other", "startsAtSeconds": 90}]))
    assert done.finished
    assert done.most <= budget


def test_the_fixed_fleet_idles_for_more_of_its_time_and_costs_more():
    compared = compare_shared(trace())
    assert compared.fixed.total.gpu_seconds > compared.budget.total.gpu_seconds
    assert compared.fixed.total.idle_share > compared.budget.total.idle_share > 0


def test_the_idle_share_of_a_fixed_fleet_is_what_is_left_of_its_time():
    fixed = run_shared(trace(pools=("judge",), asks=({"judge": 1},)), fixed={"judge": 2})
    (judge,) = fixed.pools
    assert judge.gpu_seconds == pytest.approx(2 * fixed.seconds)
    # Samples come 2/3 s apart and take 1 s, so that at most two at a time are answered.
    assert 120 <= judge.busy_seconds <= 240


def test_jobs_say_how_long_their_samples_are_where_it_is_known(monkeypatch):
    said = {}

    def recommend(*, signals, **given):
        said.update((one.demand.job, one.demand.tokens_per_sample) for one in signals.announcements)
        return pool_policy_recommend(signals=signals, **given)

    pool_policy_recommend = pool_policy.recommend
    monkeypatch.setattr(pool_policy, "recommend", recommend)
    jobs = [{"steps": 2}, {"name": "long", "steps": 1, "length": 16}]
    run_shared(trace(pools=("maths",), asks=({"maths": 1},), jobs=jobs))
    assert said == {"job": 1000, "long": 16_000}
    run_shared(trace(pools=("maths",), asks=({"maths": 1},), jobs=jobs, tokensPerSecond=None))
    assert said == {"job": None, "long": None}


def test_the_trace_of_the_package_ends_within_its_budget():
    example = load_shared()
    short = example.model_copy(update={"jobs": [job.model_copy(update={"steps": 2}) for job in example.jobs]})
    done = run_shared(short)
    assert done.finished
    assert done.most <= example.budget


@pytest.mark.parametrize(
    ("asks", "problem"),
    [([{"nobody": 1}], "names of pools"), ([{}], "names of pools"), ([{"maths": 0}], "greater than 0")],
)
def test_a_job_asks_pools_that_are_there(asks, problem):
    with pytest.raises(ValueError, match=problem):
        trace(asks=asks)
