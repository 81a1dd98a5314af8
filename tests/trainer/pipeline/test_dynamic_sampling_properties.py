"""Whatever the delays, failures and resumes: every group that was begun is trained on or dropped, on every rank."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import simulated_time
from support.simulated_job import SimulatedJob, check_own, run_in_lives
from support.simulated_ranks import SimulatedCollectives, SimulatedRank

from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.schedule import SCHEDULES, Order, Plan

EVERY_SCHEDULE = pytest.mark.parametrize(
    "schedule", [name for name, schedule in SCHEDULES.items() if not schedule.disaggregated]
)

Scores = Sequence[float | None]


def one_in(often: int) -> Callable[[Scores], bool]:
    """What calls one group of so many useless, by its scores alone; 1 calls all so."""

    def is_informative(scores: Scores) -> bool:
        return round(100 * sum(score or 0 for score in scores)) % often != 0

    return is_informative


@st.composite
def jobs(draw: st.DrawFn, schedule: str, *, orders: Sequence[Order] = ("arrival", "prompt")) -> SimulatedJob:
    """Small jobs of every shape, in which few, many or all groups teach nothing."""
    per_minibatch = draw(st.integers(1, 3))
    return SimulatedJob(
        plan=Plan(
            steps=draw(st.integers(1, 4)),
            groups_per_step=per_minibatch * draw(st.integers(1, 3)),
            groups_per_minibatch=per_minibatch,
            group_size=draw(st.integers(1, 3)),
        ),
        overlap=Overlap(schedule=schedule, order=draw(st.sampled_from(orders))),  # type: ignore[arg-type]
        sampling=DynamicSampling(rounds=draw(st.integers(1, 4)), is_informative=one_in(draw(st.integers(1, 4)))),
        rng=random.Random(draw(st.integers(0, 2**32))),
    )


def check(job: SimulatedJob) -> None:
    """Every group that was begun once, with its own scores and in its own step; every mini-batch full."""
    plan, sampling = job.plan, job.sampling
    assert sampling is not None
    trained = [group for minibatch in job.trained for group in minibatch.groups]
    dropped = [group for minibatch in job.trained for group in minibatch.dropped]
    begun = [group.task.index for group in [*trained, *dropped]]
    assert sorted(begun) == list(range(plan.groups + len(dropped)))
    assert not any(sampling.is_informative(group.scores) for group in dropped)
    for group in [*trained, *dropped]:
        check_own(group, size=plan.group_size)
    assert [(batch.step, batch.number) for batch in job.trained] == [
        (step, number) for step in range(plan.steps) for number in range(plan.minibatches_per_step)
    ]
    for minibatch in job.trained:
        assert len(minibatch.groups) == plan.groups_per_minibatch
        assert {group.task.step for group in [*minibatch.groups, *minibatch.dropped]} == {minibatch.step}


def check_rounds(*ranks: SimulatedJob) -> None:
    """A step trains on useless groups only where all of its rounds are used up."""
    for job in ranks:
        assert job.sampling is not None
        for step in range(job.plan.steps):
            batches = [minibatch for minibatch in job.trained if minibatch.step == step]
            rounds = sum(minibatch.sampling_rounds for minibatch in batches)
            all_teach = all(job.sampling.is_informative(group.scores) for batch in batches for group in batch.groups)
            assert rounds == job.sampling.rounds or (rounds < job.sampling.rounds and all_teach)


@EVERY_SCHEDULE
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_group_is_trained_on_or_dropped_and_every_mini_batch_is_full(schedule: str, data: st.DataObject) -> None:
    job = data.draw(jobs(schedule))
    simulated_time.run(job.pipeline().run())
    check(job)
    check_rounds(job)
    assert set(job.scored.values()) == {1}
    assert set(job.rolled_out.values()) == {1}
    assert job.published == len(job.trained)


@given(st.data(), st.lists(st.floats(0, 300), max_size=6))
@settings(max_examples=60, deadline=None)
def test_where_there_are_no_steps_every_group_is_trained_on_or_dropped_too(
    data: st.DataObject, lives: list[float]
) -> None:
    job = data.draw(jobs("fully_async"))
    job.overlap = replace(job.overlap, max_staleness=data.draw(st.integers(0, 3)))
    job.failing = data.draw(st.sampled_from([0.0, 0.03]))
    simulated_time.run(run_in_lives(job, lives))
    assert job.sampling is not None
    trained = [group for minibatch in job.trained for group in minibatch.groups]
    dropped = [group for minibatch in job.trained for group in minibatch.dropped]
    begun = sorted(group.task.index for group in [*trained, *dropped])
    assert begun == list(range(job.plan.groups + len(dropped)))
    for minibatch in job.trained:
        assert len(minibatch.groups) == job.plan.groups_per_minibatch
        assert len(minibatch.dropped) <= job.sampling.rounds * job.plan.groups_per_minibatch
        assert all(minibatch.staleness(group) <= job.overlap.max_staleness for group in minibatch.groups)
        assert not any(job.sampling.is_informative(group.scores) for group in minibatch.dropped)


@EVERY_SCHEDULE
@given(st.data(), st.lists(st.floats(0, 300), max_size=6))
@settings(max_examples=60, deadline=None)
def test_failures_and_cancellations_are_made_up_for_by_resumes(
    schedule: str, data: st.DataObject, lives: list[float]
) -> None:
    job = data.draw(jobs(schedule))
    job.failing = 0.03

    simulated_time.run(run_in_lives(job, lives))
    check(job)
    check_rounds(job)


@EVERY_SCHEDULE
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_checkpoint_may_be_of_any_moment_but_an_update_also_within_a_round(
    schedule: str, data: st.DataObject
) -> None:
    job = data.draw(jobs(schedule))
    seconds = data.draw(st.floats(0, 300))

    async def first_life() -> None:
        pipeline = job.pipeline()
        running = asyncio.create_task(pipeline.run())
        await asyncio.sleep(seconds)
        if "update" not in job.running:
            job.checkpoint = json.loads(json.dumps(pipeline.state().to_json(encode=str))), len(job.trained)
        running.cancel()
        await asyncio.wait([running])

    simulated_time.run(first_life())
    pipeline = job.pipeline()
    simulated_time.run(pipeline.run())
    trained = [group for minibatch in job.trained for group in minibatch.groups]
    state = pipeline.state()
    assert len({group.task.index for group in trained}) == len(trained) == job.plan.groups
    assert (state.begun, len(state.groups), len(state.again)) == (job.plan.groups + state.dropped, 0, 0)
    assert all(group.task.step == minibatch.step for minibatch in job.trained for group in minibatch.groups)


@EVERY_SCHEDULE
@given(st.data(), st.integers(0, 2**32), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_by_prompt_what_is_dropped_does_not_depend_on_the_timing(
    schedule: str, data: st.DataObject, first: int, second: int
) -> None:
    job = data.draw(jobs(schedule, orders=["prompt"]))
    seen = []
    for seed in (first, second):
        again = SimulatedJob(plan=job.plan, overlap=job.overlap, sampling=job.sampling, rng=random.Random(seed))
        simulated_time.run(again.pipeline().run())
        seen.append([(batch.groups, batch.dropped, batch.sampling_rounds) for batch in again.trained])
    assert seen[0] == seen[1]


@EVERY_SCHEDULE
@given(st.data(), st.integers(2, 3))
@settings(max_examples=40, deadline=None)
def test_all_ranks_go_through_the_same_operations(schedule: str, data: st.DataObject, size: int) -> None:
    job = data.draw(jobs(schedule))
    assert job.sampling is not None
    collectives = SimulatedCollectives(size)
    ranks = [
        SimulatedRank(
            plan=job.plan, overlap=job.overlap, rng=random.Random(job.rng.random()), rank=rank, collectives=collectives
        )
        for rank in range(size)
    ]
    for rank in ranks:
        rank.sampling = replace(job.sampling, is_informative=one_in(data.draw(st.integers(1, 4))), most=rank.most)

    async def whole_job() -> None:
        async with asyncio.timeout(1e6), asyncio.TaskGroup() as running:
            for rank in ranks:
                running.create_task(rank.pipeline().run())

    simulated_time.run(whole_job())
    assert all(calls == collectives.calls[0] for calls in collectives.calls)
    for rank in ranks:
        check(rank)
    check_rounds(*ranks)
