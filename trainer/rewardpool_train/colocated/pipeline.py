"""A pipeline whose rollouts, updates and rewards share one GPU: wrappers around what its user brings.

    rollouts, learner, score = share(gpu, rollouts, learner, score)

Rollouts and updates become the trainer's turns, each score a sample that waits for the pool's, and each group that is
judged as a whole so many samples that wait together. The pipeline itself
knows nothing of it. Not for `fully_async`, where rollout and training are on devices of their own. What a callback of
the pipeline needs the GPU for, a checkpoint say, is a turn of the trainer's too: `in_turn`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rewardpool_train.colocated.gpu import SharedGpu
from rewardpool_train.pipeline.parts import (
    GroupScore,
    GroupTask,
    Learner,
    MiniBatch,
    OnEnd,
    P,
    R,
    RatedGroup,
    RolledGroup,
    Rollouts,
    Score,
    Scoring,
    SettledScore,
)

A = TypeVar("A")


@dataclass(frozen=True)
class _Rollouts(Generic[P, R]):
    gpu: SharedGpu
    inner: Rollouts[P, R]

    async def roll_out(self, tasks: Sequence[GroupTask[P]], on_end: OnEnd[P, R]) -> None:
        async with self.gpu.training():
            await self.inner.roll_out(tasks, on_end)


@dataclass(frozen=True)
class _Learner(Generic[P, R]):
    gpu: SharedGpu
    inner: Learner[P, R]

    async def train(self, minibatch: MiniBatch[P, R]) -> None:
        async with self.gpu.training():
            await self.inner.train(minibatch)

    async def publish(self, version: int) -> None:
        async with self.gpu.training():
            await self.inner.publish(version)


def share(
    gpu: SharedGpu, rollouts: Rollouts[P, R], learner: Learner[P, R], score: Scoring[P, R]
) -> tuple[Rollouts[P, R], Learner[P, R], Scoring[P, R]]:
    """Return the three with their turns on the GPU around them."""
    scoring: Scoring[P, R]
    match score:
        case GroupScore():
            scoring = _shared_groups(gpu, score)
        case SettledScore():
            scoring = _settled_samples(gpu, score)
        case _:
            scoring = _shared_samples(gpu, score)
    return _Rollouts(gpu, rollouts), _Learner(gpu, learner), scoring


def _shared_samples(gpu: SharedGpu, score: Score[P, R]) -> Score[P, R]:
    async def scored(task: GroupTask[P], member: int, rollout: R) -> float | None:
        async with gpu.scoring():
            return await score(task, member, rollout)

    return scored


def _shared_groups(gpu: SharedGpu, score: GroupScore[P, R]) -> GroupScore[P, R]:
    async def judged(group: RolledGroup[P, R]) -> Sequence[float | None]:
        async with gpu.scoring(group.task.size):
            return await score.judge(group)

    return GroupScore(judged)


def _settled_samples(gpu: SharedGpu, score: SettledScore[P, R]) -> SettledScore[P, R]:
    async def settled(group: RatedGroup[P, R]) -> Sequence[float | None]:
        async with gpu.scoring(group.task.size):
            return await score.settle(group)

    return SettledScore(_shared_samples(gpu, score.score), score.is_settled, settled)


def in_turn(gpu: SharedGpu, callback: Callable[[A], Awaitable[None]]) -> Callable[[A], Awaitable[None]]:
    """Return the callback of a pipeline with the trainer's turn on the GPU around it."""

    async def called(about: A) -> None:
        async with gpu.training():
            await callback(about)

    return called
