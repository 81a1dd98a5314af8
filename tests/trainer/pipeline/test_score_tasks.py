"""Rollouts that end at one moment: whose scores begin when."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from support import simulated_time

from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, MiniBatch, OnEnd, RolledGroup
from rewardpool_train.pipeline.schedule import Plan
from rewardpool_train.pipeline.tasks import AT_ONCE

PLAN = Plan(steps=2, groups_per_step=4, groups_per_minibatch=2, group_size=2 * AT_ONCE)


class Job:
    """All rollouts of a step end together, and scores are there at once."""

    def __init__(self) -> None:
        self.tasks: list[int] = []
        """Of the event loop, when each rollout began."""
        self.most_in_a_turn = 0
        """Scores that began in one turn of the event loop."""
        self._in_this_turn = 0

    async def roll_out(self, tasks: Sequence[GroupTask[int]], on_end: OnEnd[int, int]) -> None:
        self.tasks.append(len(asyncio.all_tasks()))
        await asyncio.sleep(1.0)
        for task in tasks:
            for member in range(task.size):
                on_end(task, member, member)

    async def score(self, task: GroupTask[int], member: int, rollout: int) -> float | None:
        if not self._in_this_turn:
            asyncio.get_running_loop().call_soon(self._turn_ends)
        self._in_this_turn += 1
        return 1.0

    def _turn_ends(self) -> None:
        self.most_in_a_turn = max(self.most_in_a_turn, self._in_this_turn)
        self._in_this_turn = 0

    async def judge(self, group: RolledGroup[int, int]) -> Sequence[float | None]:
        return [1.0] * group.task.size

    async def train(self, minibatch: MiniBatch[int, int]) -> None:
        await asyncio.sleep(1.0)

    async def publish(self, version: int) -> None: ...

    def pipeline(self, *, by_group: bool = False) -> Pipeline[int, int]:
        score: Any = GroupScore(self.judge) if by_group else self.score
        overlap = Overlap(schedule="one_step_off_minibatch")
        return Pipeline(plan=PLAN, prompts=int, rollouts=self, score=score, learner=self, overlap=overlap)


@pytest.mark.parametrize("by_group", [False, True])
def test_the_devices_go_on_before_the_scores_of_what_ended_are_asked_for(by_group: bool) -> None:
    job = Job()
    simulated_time.run(job.pipeline(by_group=by_group).run())
    assert job.tasks[1] == job.tasks[0]


def test_what_else_happens_waits_for_some_of_the_scores_that_begin_and_not_for_all() -> None:
    job = Job()
    simulated_time.run(job.pipeline().run())
    assert job.most_in_a_turn <= AT_ONCE
