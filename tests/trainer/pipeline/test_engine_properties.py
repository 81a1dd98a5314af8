"""Whatever the delays, failures, cancellations and resumes: no sample is lost, repeated or mixed up."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import simulated_time
from support.simulated_job import SimulatedJob, check_own, run_in_lives

from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan

EVERY_SCHEDULE = pytest.mark.parametrize("schedule", SCHEDULES)


@st.composite
def jobs(draw: st.DrawFn, schedule: str, *, failing: float = 0.0) -> SimulatedJob:
    """Small jobs of every shape."""
    per_minibatch, minibatches = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    max_staleness = draw(st.integers(0, 3))
    plan = Plan(
        steps=draw(st.integers(1, 4)),
        groups_per_step=per_minibatch * minibatches,
        groups_per_minibatch=per_minibatch,
        group_size=draw(st.integers(1, 3)),
    )
    overlap = Overlap(
        schedule=schedule,  # type: ignore[arg-type]
        order=draw(st.sampled_from(["arrival", "prompt"])),
        max_staleness=max_staleness,
        publish_every=draw(st.integers(1, max_staleness + 1)),
        groups_per_rollout=draw(st.none() | st.integers(1, 4)),
    )
    rng = random.Random(draw(st.integers(0, 2**32)))
    return SimulatedJob(plan=plan, overlap=overlap, rng=rng, by_group=draw(st.booleans()), failing=failing)


def check_trained(job: SimulatedJob) -> None:
    """Every group once, with its own rollouts and their own scores, in its own step, and not too old."""
    plan = job.plan
    groups = [group for minibatch in job.trained for group in minibatch.groups]
    assert sorted(group.task.index for group in groups) == list(range(plan.groups))
    assert all(len(minibatch.groups) == plan.groups_per_minibatch for minibatch in job.trained)
    for group in groups:
        check_own(group, size=plan.group_size)
    for minibatch in job.trained:
        ages = {minibatch.staleness(group) for group in minibatch.groups}
        if SCHEDULES[job.overlap.schedule].disaggregated:
            assert ages <= set(range(job.overlap.max_staleness + 1))
        else:
            assert all(group.task.step == minibatch.step for group in minibatch.groups)
            steps_ahead = SCHEDULES[job.overlap.schedule].ahead + 1
            assert ages <= set(range(steps_ahead * plan.minibatches_per_step))


@EVERY_SCHEDULE
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_group_is_trained_on_once_with_its_own_scores(schedule: str, data: st.DataObject) -> None:
    job = data.draw(jobs(schedule))
    simulated_time.run(job.pipeline().run())
    check_trained(job)
    assert set(job.scored.values()) == {1}
    assert job.published == len(job.trained)
    assert [times.step for times in job.steps] == list(range(job.plan.steps))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_fully_async_trains_no_group_much_before_or_after_its_turn_whatever_it_takes(data: st.DataObject) -> None:
    """So quick groups, whose responses are short, are not preferred: what they are ahead of others is bounded."""
    job = data.draw(jobs("fully_async"))
    simulated_time.run(job.pipeline().run())
    for number, minibatch in enumerate(job.trained):
        turns = [group.task.index // job.plan.groups_per_minibatch for group in minibatch.groups]
        assert all(abs(number - turn) <= job.overlap.max_staleness for turn in turns)


@EVERY_SCHEDULE
@given(st.data(), st.lists(st.floats(0, 150), max_size=6))
@settings(max_examples=60, deadline=None)
def test_failures_and_cancellations_are_made_up_for_by_resumes(
    schedule: str, data: st.DataObject, lives: list[float]
) -> None:
    job = data.draw(jobs(schedule, failing=0.03))

    simulated_time.run(run_in_lives(job, lives))
    check_trained(job)


@EVERY_SCHEDULE
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_score_in_a_checkpoint_is_not_asked_for_again(schedule: str, data: st.DataObject) -> None:
    job = data.draw(jobs(schedule))
    pipeline = job.pipeline()
    ends_at = data.draw(st.integers(1, job.plan.steps * job.plan.minibatches_per_step))

    async def on_update(version: int) -> None:
        if version == ends_at:
            job.checkpoint = pipeline.state().to_json(encode=str), len(job.trained)
            pipeline.end()

    pipeline._on_update = on_update
    simulated_time.run(pipeline.run())
    assert job.checkpoint is not None
    known = {group["rollouts"][member] for group in job.checkpoint[0]["groups"] for member, _ in group["scores"]}
    before = dict(job.scored)
    simulated_time.run(job.pipeline().run())
    check_trained(job)
    assert all(job.scored[rollout] == before[rollout] for rollout in known)


@pytest.mark.parametrize("schedule", [name for name, schedule in SCHEDULES.items() if not schedule.disaggregated])
@given(st.data(), st.integers(0, 2**32), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_by_prompt_the_mini_batches_do_not_depend_on_the_timing(
    schedule: str, data: st.DataObject, first: int, second: int
) -> None:
    job = data.draw(jobs(schedule))
    seen = []
    for seed in (first, second):
        again = SimulatedJob(
            plan=job.plan,
            overlap=Overlap(schedule=job.overlap.schedule, order="prompt"),
            rng=random.Random(seed),
            by_group=job.by_group,
        )
        simulated_time.run(again.pipeline().run())
        seen.append([(minibatch.version, minibatch.groups) for minibatch in again.trained])
    assert seen[0] == seen[1]
