"""Groups that are judged as a whole: each with its last response, and none waits for another."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from support import simulated_time
from support.simulated_job import SimulatedJob, check_own

from rewardpool_train.pipeline.group_buffer import GroupBuffer
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, OnEnd, RolledGroup
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan, ScheduleName
from rewardpool_train.pipeline.state import GroupState, PipelineState

SIZE = 3
PLAN = Plan(steps=3, groups_per_step=4, groups_per_minibatch=2, group_size=SIZE)
LAST_SECONDS = 10.0
EVERY_SCHEDULE = pytest.mark.parametrize("schedule", SCHEDULES)


class TimedJob(SimulatedJob):
    """The last responses of a rollout's groups end one second after the other, those of the last group first."""

    def __init__(self, schedule: ScheduleName = "minibatch") -> None:
        super().__init__(
            plan=PLAN, overlap=Overlap(schedule=schedule, max_staleness=4), rng=random.Random(1), by_group=True
        )
        self.judged: list[tuple[float, int]] = []
        """When each group came to the judge, in seconds, and its index."""
        self.judge_seconds: dict[int, float] = {}
        """By group; one second where it is not said."""
        self.refused: set[int] = set()

    async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, str]) -> None:
        for task in tasks:
            for member in range(1, SIZE):
                on_end(task, member, f"{task.index}.{member}#1")
        await asyncio.sleep(LAST_SECONDS - len(tasks))
        for task in reversed(tasks):
            await asyncio.sleep(1)
            on_end(task, 0, f"{task.index}.0#1")

    async def judge(self, group: RolledGroup[str, str]) -> Sequence[float | None]:
        index = group.task.index
        self.judged.append((asyncio.get_running_loop().time(), index))
        await asyncio.sleep(self.judge_seconds.get(index, 1.0))
        return [None] * SIZE if index in self.refused else [float(index), None, 0.5]

    def run(self, **changes: Any) -> None:
        simulated_time.run(self.pipeline(**changes).run())

    def trained_groups(self) -> list[int]:
        return [group.task.index for minibatch in self.trained for group in minibatch.groups]


def test_a_group_is_judged_the_moment_its_last_response_ends() -> None:
    job = TimedJob("sync")
    job.run()
    began = job.judged[0][0] - 7.0
    assert [(at - began, index) for at, index in job.judged[:4]] == [(7, 3), (8, 2), (9, 1), (10, 0)]


@EVERY_SCHEDULE
def test_every_group_is_judged_once_and_trained_on_with_its_own_scores(schedule: ScheduleName) -> None:
    job = TimedJob(schedule)
    job.run()
    assert sorted(index for _, index in job.judged) == sorted(job.trained_groups()) == list(range(PLAN.groups))
    for minibatch in job.trained:
        assert all(list(group.scores) == [group.task.index, None, 0.5] for group in minibatch.groups)


def test_groups_are_trained_on_in_the_order_in_which_they_are_complete() -> None:
    job = TimedJob()
    job.run()
    assert job.trained_groups() == [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]


def test_a_group_with_a_slow_judge_delays_itself_alone() -> None:
    job = TimedJob()
    job.judge_seconds[3] = 60.0
    job.run()
    assert job.trained_groups()[:4] == [2, 1, 0, 3]
    assert [minibatch.waited_seconds for minibatch in job.trained[:2]] == [0.0, pytest.approx(60, abs=10)]


@EVERY_SCHEDULE
def test_a_group_that_is_refused_has_no_scores_and_changes_nothing_for_the_others(schedule: ScheduleName) -> None:
    job = TimedJob(schedule)
    job.refused = {5}
    job.run()
    scores = {group.task.index: list(group.scores) for minibatch in job.trained for group in minibatch.groups}
    assert scores.pop(5) == [None] * SIZE
    assert scores == {index: [float(index), None, 0.5] for index in range(PLAN.groups) if index != 5}


@EVERY_SCHEDULE
def test_a_group_whose_judge_is_silent_is_waited_for_until_the_deadline(schedule: ScheduleName) -> None:
    job = TimedJob(schedule)
    job.judge_seconds[1] = 1e6
    with pytest.raises(TimeoutError, match=r"(3|9) samples have no outcome after 40 s; raise step_deadline_seconds"):
        job.run(deadline_seconds=40)
    assert 1 not in job.trained_groups()


@pytest.mark.parametrize("scores", [[], [1.0, 2.0], [1.0] * 4])
def test_more_or_fewer_scores_than_members_are_an_error(scores: list[float]) -> None:
    async def judge(_: RolledGroup[str, str]) -> Sequence[float | None]:
        return scores

    with pytest.raises(ValueError, match=rf"group 3 has 3 members, and was given {len(scores)} scores"):
        TimedJob().run(score=GroupScore(judge))


def test_scores_that_somebody_else_cancels_are_an_error_and_no_endless_wait() -> None:
    async def judge(_: RolledGroup[str, str]) -> Sequence[float | None]:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled from outside the run: the scores of group 3"):
        TimedJob().run(score=GroupScore(judge))


def resumed(scores: dict[int, float | None]) -> TimedJob:
    """A job that goes on with the first of its groups rolled out, and these scores of that known."""
    group = GroupState(index=0, step=0, version=0, rollouts=["0.0#1", "0.1#1", "0.2#1"], scores=scores)
    state: PipelineState[str] = PipelineState(
        schedule="minibatch", plan=PLAN, trained=0, begun=4, groups=[group], again={1: 0, 2: 0, 3: 0}
    )
    job = TimedJob()
    job.run(resume=state)
    return job


def test_a_group_that_a_checkpoint_has_without_scores_is_judged_as_a_whole() -> None:
    assert [index for _, index in resumed({}).judged].count(0) == 1


def test_scores_that_some_members_have_of_another_reward_do_not_count() -> None:
    job = resumed({0: 7.0, 2: 8.0})
    assert [index for _, index in job.judged].count(0) == 1
    [group] = [group for minibatch in job.trained for group in minibatch.groups if group.task.index == 0]
    assert list(group.scores) == [0.0, None, 0.5]


def test_a_group_that_a_checkpoint_has_with_its_scores_is_not_judged_again() -> None:
    job = resumed({0: 7.0, 1: None, 2: 8.0})
    assert 0 not in [index for _, index in job.judged]


@EVERY_SCHEDULE
def test_at_every_update_a_checkpoint_has_all_scores_of_a_group_or_none(schedule: ScheduleName) -> None:
    job = SimulatedJob(plan=PLAN, overlap=Overlap(schedule=schedule), rng=random.Random(4), by_group=True)
    pipeline = job.pipeline()
    known: set[int] = set()

    async def on_update(_: int) -> None:
        known.update(len(group.scores) for group in pipeline.state().groups)

    pipeline._on_update = on_update
    simulated_time.run(pipeline.run())
    assert known <= {0, SIZE}
    for minibatch in job.trained:
        for group in minibatch.groups:
            check_own(group, size=SIZE)


def test_whether_a_judged_group_teaches_is_asked_of_all_of_its_scores() -> None:
    buffer: GroupBuffer[str, str] = GroupBuffer(lambda scores: len(set(scores)) > 1)
    for index, scores in enumerate([[1.0, 1.0], [1.0, None]]):
        buffer.begin(GroupTask(index=index, prompt="?", size=2, version=0))
        for member in range(2):
            buffer.add_rollout(index, member, "a response")
        buffer.add_scores(index, scores)
    assert [group.informative for group in buffer.groups()] == [False, True]
