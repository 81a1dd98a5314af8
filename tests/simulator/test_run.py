"""Policies against traces: the same figures every time, and what they are measured against."""

import pytest

from rewardpool_simulator import builtin
from rewardpool_simulator.compare import compare
from rewardpool_simulator.policies import NAMES, always_on, factories_for, manifest_policy
from rewardpool_simulator.pool_policy import PoolPolicy
from rewardpool_simulator.run import Simulator, simulate
from rewardpool_simulator.trace import Trace

POOL = {
    "seconds": 900,
    "fleet": {
        "maxReplicas": 4,
        "startSeconds": {"seconds": 30},
        "serviceSeconds": {"type": "Lognormal", "seconds": 1, "shape": 0.3},
        "concurrency": 4,
    },
    "figures": {"targetPerReplica": 8, "drainSeconds": 5, "cooldownSeconds": 120},
}
JOB = {
    "name": "job",
    "startsAtSeconds": 60,
    "loadSeconds": 60,
    "steps": 4,
    "samples": 200,
    "rolloutSeconds": {"type": "Uniform", "seconds": 40, "mostSeconds": 50},
    "arrivals": "AtOnce",
    "updateSeconds": {"seconds": 60},
}


def trace(*, job=None, **given):
    return Trace.model_validate({**POOL, "jobs": [{**JOB, **(job or {})}], **given})


def run(name, of, **given):
    return simulate(of, factories_for(of)[name], **given)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_with_the_same_seed_is_the_same_and_with_another_one_is_not(name):
    first, again, other = run(name, trace()), run(name, trace()), run(name, trace(), seed=1)
    assert first == again
    assert first.seconds == other.seconds
    assert first.jobs != other.jobs


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_is_answered_once_under_every_policy(name):
    faults = {
        "losses": [{"atSeconds": second, "share": 0.5} for second in range(200, 700, 50)],
        "shortages": [{"fromSeconds": 300, "untilSeconds": 400, "replicas": 1}],
        "blind": [{"fromSeconds": 350, "untilSeconds": 380}],
    }
    done = run(name, trace(faults=faults))
    assert done.finished
    assert done.answered == 4 * 200


def test_a_fleet_that_is_always_on_costs_its_size_times_the_time():
    done = simulate(trace(), always_on(3))
    assert (done.gpu_seconds, done.changes, done.peak) == (3 * 900, 1, 3)


def test_a_run_lasts_as_long_as_its_jobs():
    done = simulate(trace(job={"samples": 1500}), always_on(1))
    assert done.finished
    assert done.seconds > 900


def test_a_policy_under_which_jobs_never_end_is_given_up_and_told():
    done = simulate(trace(), always_on(0))
    assert not done.finished
    assert done.jobs[0].ended_seconds is None


def test_the_wait_is_how_much_later_a_job_ends_than_with_instant_scores():
    done = simulate(trace(), always_on(2))
    assert done.wait_seconds == done.jobs[0].ended_seconds - Simulator(trace()).ends_with_instant_scores["job"]
    # 200 samples of about a second, four at a time on each of two replicas, in each of four steps.
    assert 4 * 20 < done.wait_seconds < 4 * 35


def test_announced_bursts_find_a_warm_fleet_and_others_do_not():
    warm = simulate(trace(), always_on(4)).wait_seconds
    told, silent = run("demand", trace()), run("queue-depth", trace())
    assert told.wait_seconds - warm < 2 < 20 < silent.wait_seconds - warm


def test_a_killed_job_s_fleet_goes_although_nobody_says_so():
    of, made = trace(job={"diesAfterSteps": 1, "steps": 100}), list[PoolPolicy]()
    done = simulate(of, lambda observation: made.append(factories_for(of)["demand"](observation)) or made[0])
    assert done.peak > 0
    assert made[0].scaling_status.desired == 0


def test_a_manifest_s_own_autoscaling_can_be_simulated():
    scaling = factories_for(trace())["queue-depth"].args[1]  # type: ignore[attr-defined]  # a partial
    done = simulate(trace(), manifest_policy(scaling))
    assert done.policy == "manifest"
    assert done.gpu_seconds == run("queue-depth", trace()).gpu_seconds


def test_recorded_requests_come_when_they_came():
    arrivals = [{"atSeconds": 100, "samples": 40, "overSeconds": 20}, {"atSeconds": 300, "samples": 40}]
    done = simulate(Trace.model_validate({**POOL, "arrivals": arrivals}), always_on(4))
    assert (done.answered, done.jobs) == (80, ())
    assert 20 < done.wait_seconds < 40


def test_stall_is_told_beside_the_smallest_fleet_that_stalls_as_little():
    factories = factories_for(trace())
    found = compare(trace(), {name: factories[name] for name in ("demand", "queue-depth")}, name="small")
    assert list(found.outcomes) == ["demand", "queue-depth"]
    assert found.always_on.stall_seconds <= found.outcomes["demand"].stall_seconds + 1
    assert found.share("demand") == found.outcomes["demand"].run.gpu_seconds / found.always_on.run.gpu_seconds
    size = int(found.always_on.run.policy.removeprefix("always-on-"))
    smaller = simulate(trace(), always_on(size - 1)).wait_seconds - simulate(trace(), always_on(4)).wait_seconds
    assert smaller > found.outcomes["demand"].stall_seconds + 1


def test_progress_is_told_up_to_the_end():
    shares = []
    simulate(trace(), always_on(1), on_progress=shares.append)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)


@pytest.mark.parametrize("name", builtin.NAMES)
def test_the_built_in_traces_end_with_a_full_fleet_long_before_their_time(name):
    chosen = builtin.load_trace(name)
    assert chosen.description
    assert max(Simulator(chosen).ends_with_instant_scores.values()) < 0.8 * chosen.seconds
    assert min(job.starts_at_seconds for job in chosen.jobs) > 0
