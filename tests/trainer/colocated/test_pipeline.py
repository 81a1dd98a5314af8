"""The real pipeline on one GPU with a pool: under every schedule that shares devices, on a simulated clock."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
from support.simulated_time import run

from rewardpool_train.colocated import Costs, SharedGpu
from rewardpool_train.colocated.gpu import TurnReport
from rewardpool_train.colocated.pipeline import share
from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, MiniBatch, OnEnd, RolledGroup
from rewardpool_train.pipeline.schedule import Plan, ScheduleName

SIZE = 2
PLAN = Plan(steps=3, groups_per_step=4, groups_per_minibatch=2, group_size=SIZE)


class SimulatedJob:
    """Rollouts, learner and pool that take simulated seconds, and check that each has the GPU to itself."""

    def __init__(self) -> None:
        self.user: str | None = None
        self.trained: list[tuple[int, Sequence[float | None]]] = []

    @asynccontextmanager
    async def _alone(self, user: str) -> AsyncGenerator[None, None]:
        assert self.user is None
        self.user = user
        yield
        self.user = None

    @asynccontextmanager
    async def awake(self) -> AsyncGenerator[None, None]:
        async with self._alone("pool"):
            await asyncio.sleep(0.5)
            yield
            await asyncio.sleep(0.25)

    async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, int]) -> None:
        async with self._alone("rollout"):
            for task in tasks:
                for member in range(task.size):
                    await asyncio.sleep(0.3)
                    on_end(task, member, 10 * task.index + member)

    async def train(self, minibatch: MiniBatch[str, int]) -> None:
        async with self._alone("update"):
            await asyncio.sleep(2)
            self.trained += [(group.task.index, group.scores) for group in minibatch.groups]

    async def publish(self, version: int) -> None:
        async with self._alone("publish"):
            await asyncio.sleep(0.1)

    async def score(self, task: GroupTask[str], member: int, rollout: int) -> float:
        assert self.user == "pool"
        await asyncio.sleep(0.2)
        return float(rollout)

    async def judge(self, group: RolledGroup[str, int]) -> list[float | None]:
        assert self.user == "pool"
        await asyncio.sleep(0.2)
        return [float(rollout) for rollout in group.rollouts]


@pytest.mark.parametrize("by_group", [False, True], ids=["samples", "groups"])
# One step ahead, the samples of two steps are scored in one turn.
@pytest.mark.parametrize(
    ("schedule", "turns"), [("sync", 3), ("minibatch", 3), ("one_step_off", 2), ("one_step_off_minibatch", 2)]
)
def test_every_schedule_shares_the_gpu_and_trains_on_every_score(
    schedule: ScheduleName, turns: int, by_group: bool
) -> None:
    job = SimulatedJob()

    async def play() -> TurnReport:
        clock = asyncio.get_running_loop().time
        async with SharedGpu(job.awake, Costs(patience_seconds=0.05), clock=clock) as gpu:
            rollouts, learner, score = share(gpu, job, job, GroupScore(job.judge) if by_group else job.score)
            pipeline = Pipeline(
                plan=PLAN,
                prompts=str,
                rollouts=rollouts,
                score=score,
                learner=learner,
                overlap=Overlap(schedule=schedule),
            )
            await pipeline.run()
            return gpu.report()

    report = run(play())
    assert (report.turns, report.scored) == (turns, PLAN.groups * SIZE)
    expected = {index: [10.0 * index, 10.0 * index + 1] for index in range(PLAN.groups)}
    assert {index: list(scores) for index, scores in job.trained} == expected
