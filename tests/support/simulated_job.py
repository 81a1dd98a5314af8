"""A training job without a model: what it does takes random times of a simulated clock, and everything is noted."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling
from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, MiniBatch, OnEnd, RatedGroup, RolledGroup
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan
from rewardpool_train.pipeline.state import PipelineState
from rewardpool_train.pipeline.times import StepTimes

Batch = MiniBatch[str, str]


class BrokenError(Exception):
    """Stands for any error of a score."""


def score_of(rollout: str) -> float | None:
    """The one right score of a rollout; some have none."""
    number = sum(rollout.encode())
    return None if number % 7 == 0 else number / 100


@dataclass
class SimulatedJob:
    """Rollouts, score and learner in one; rollouts are named `group.member#times rolled out`.

    Attributes:
        plan: Of the job.
        overlap: Likewise.
        rng: Decides every delay.
        sampling: Of the job.
        by_group: Whether groups are judged as a whole.
        failing: Chance that a score, or a group's, fails.
        rollout_seconds: Of the slowest rollout, about.
        score_seconds: Of the slowest score.
        trained: Mini-batches, in order.
        scored: How often each rollout's score was asked for to the end.
        checkpoint: The newest, as JSON, with how many mini-batches the learner had trained then.
    """

    plan: Plan
    overlap: Overlap
    rng: random.Random
    sampling: DynamicSampling | None = None
    by_group: bool = False
    failing: float = 0.0
    rollout_seconds: float = 10.0
    score_seconds: float = 40.0
    update_seconds: float = 3.0
    trained: list[Batch] = field(default_factory=list)
    steps: list[StepTimes] = field(default_factory=list)
    scored: Counter[str] = field(default_factory=Counter)
    checkpoint: tuple[dict[str, Any], int] | None = None
    running: set[str] = field(default_factory=set)
    published: int = 0
    rolled_out: Counter[int] = field(default_factory=Counter)

    def pipeline(self, **changes: Any) -> Pipeline[str, str]:
        """The job's pipeline, from the newest checkpoint if there is one."""
        resume: PipelineState[str] | None = None
        if self.checkpoint is not None:
            resume = PipelineState.from_json(self.checkpoint[0], decode=lambda rollout: str(rollout))
        arguments: dict[str, Any] = {
            "plan": self.plan,
            "prompts": lambda index: f"prompt {index}",
            "rollouts": self,
            "score": GroupScore(self.judge) if self.by_group else self.score,
            "learner": self,
            "overlap": self.overlap,
            "sampling": self.sampling,
            "on_step": self.on_step,
            "resume": resume,
        }
        del self.trained[self.checkpoint[1] if self.checkpoint else 0 :]
        self.published = len(self.trained)
        self.running.clear()
        return Pipeline(**arguments | changes)

    def keep(self, pipeline: Pipeline[str, str]) -> Callable[[int], Any]:
        """An `on_update` that keeps a checkpoint now and then."""

        async def on_update(version: int) -> None:
            assert version == len(self.trained)
            if self.rng.random() < 0.5:
                self.checkpoint = pipeline.state().to_json(encode=str), len(self.trained)

        return on_update

    async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, str]) -> None:
        self._enters("rollout")
        assert all(task.version <= self.published for task in tasks)
        async with asyncio.TaskGroup() as members:
            for task in tasks:
                self.rolled_out[task.index] += 1
                for member in range(task.size):
                    members.create_task(self._roll_out_one(task, member, on_end))
        self.running.remove("rollout")

    async def _roll_out_one(self, task: GroupTask[str], member: int, on_end: OnEnd[str, str]) -> None:
        assert task.prompt == f"prompt {task.index}"
        await asyncio.sleep(self.rng.random() * self.rollout_seconds)
        on_end(task, member, f"{task.index}.{member}#{self.rolled_out[task.index]}")

    async def score(self, task: GroupTask[str], member: int, rollout: str) -> float | None:
        assert rollout.startswith(f"{task.index}.{member}#")
        await self._take_the_time_of_a_score(rollout)
        self.scored[rollout] += 1
        return score_of(rollout)

    async def judge(self, group: RolledGroup[str, str]) -> Sequence[float | None]:
        index, members = group.task.index, [rollout.partition("#")[0] for rollout in group.rollouts]
        assert members == [f"{index}.{member}" for member in range(group.task.size)]
        await self._take_the_time_of_a_score(f"group {index}")
        self.scored.update(group.rollouts)
        return [score_of(rollout) for rollout in group.rollouts]

    async def _take_the_time_of_a_score(self, what: str) -> None:
        await asyncio.sleep(self.rng.random() * self.score_seconds)
        if self.rng.random() < self.failing:
            raise BrokenError(what)

    async def train(self, minibatch: Batch) -> None:
        self._enters("update")
        assert minibatch.version == len(self.trained)
        await asyncio.sleep(self.rng.random() * self.update_seconds)
        self.trained.append(minibatch)
        self.running.remove("update")

    async def publish(self, version: int) -> None:
        assert version == len(self.trained)
        self.published = version

    async def on_step(self, times: StepTimes) -> None:
        self.steps.append(times)

    def _enters(self, operation: str) -> None:
        alone = not SCHEDULES[self.overlap.schedule].disaggregated
        assert not self.running or not alone, "rollout and training at the same time on the same devices"
        assert operation not in self.running
        self.running.add(operation)


async def run_in_lives(job: SimulatedJob, lives: Sequence[float]) -> None:
    """Run a job that is cancelled after so many seconds again and again, or fails; then once to its end, unfailing.

    Each life begins with the newest checkpoint, which has been through a file's JSON.
    """
    for seconds in lives:
        if await _ends_within(seconds, job):
            return
        if job.checkpoint is not None:
            job.checkpoint = json.loads(json.dumps(job.checkpoint[0])), job.checkpoint[1]
    job.failing = 0.0
    assert await _ends_within(1e9, job)


async def _ends_within(seconds: float, job: SimulatedJob) -> bool:
    pipeline = job.pipeline()
    pipeline._on_update = job.keep(pipeline)
    try:
        async with asyncio.timeout(seconds):
            await pipeline.run()
    except (BrokenError, TimeoutError):
        return False
    finally:
        assert len(asyncio.all_tasks()) == 1  # nothing is left behind
    return True


def check_own(group: RatedGroup[str, str], *, size: int) -> None:
    """Every member of the group is there, by its own rollout, with that rollout's score."""
    members = [rollout.partition("#")[0] for rollout in group.rollouts]
    assert members == [f"{group.task.index}.{member}" for member in range(size)]
    assert list(group.scores) == [score_of(rollout) for rollout in group.rollouts]
