"""Share one GPU between the rollouts, updates and rewards of a `rewardpool_train.pipeline`.

    rollouts, learner, score = share(gpu, rollouts, learner, score)

Rollouts and updates become turns of the trainer. A score becomes a sample that waits for the pool's turn, and a group
that is judged as a whole becomes as many samples that wait together. The pipeline needs no change. `fully_async` cannot
share a GPU, because its rollouts and training run on different devices.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, TypeVarTuple

from rewardpool_train.colocated.gpu import SharedGpu
from rewardpool_train.pipeline.parts import (
    GroupScore,
    GroupTask,
    Learner,
    MiniBatch,
    OnEnd,
    P,
    R,
    RolledGroup,
    Rollouts,
    Scoring,
    SettledScore,
)

A = TypeVarTuple("A")
T = TypeVar("T")


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
    """Return the three, each wrapped so that it waits for its turn on the GPU."""
    scoring: Scoring[P, R]
    match score:
        case GroupScore():
            scoring = GroupScore(_while_awake(gpu, score.judge, _group_size))
        case SettledScore():
            scoring = SettledScore(
                _while_awake(gpu, score.score, _one_sample),
                score.is_settled,
                _while_awake(gpu, score.settle, _group_size),
            )
        case _:
            scoring = _while_awake(gpu, score, _one_sample)
    return _Rollouts(gpu, rollouts), _Learner(gpu, learner), scoring


def in_turn(gpu: SharedGpu, callback: Callable[[*A], Awaitable[None]]) -> Callable[[*A], Awaitable[None]]:
    """Return the callback, wrapped as a turn of the trainer: a callback that writes a checkpoint needs the GPU too."""

    async def called(*arguments: *A) -> None:
        async with gpu.training():
            await callback(*arguments)

    return called


def _while_awake(
    gpu: SharedGpu, score: Callable[[*A], Awaitable[T]], samples: Callable[[*A], int]
) -> Callable[[*A], Awaitable[T]]:
    async def scored(*arguments: *A) -> T:
        async with gpu.scoring(samples(*arguments)):
            return await score(*arguments)

    return scored


def _one_sample(task: GroupTask[P], member: int, rollout: R) -> int:
    return 1


def _group_size(group: RolledGroup[P, R]) -> int:
    return group.task.size
