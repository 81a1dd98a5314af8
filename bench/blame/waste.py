"""Rollouts that are wasted because some have no score, under three ways to go on without them.

The failures are the same for all three: an exact share of the rollouts, drawn at random.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rewardpool_train.advantages import group_advantages, has_members
from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling
from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.parts import GroupTask, MiniBatch, OnEnd
from rewardpool_train.pipeline.schedule import Plan

GROUP_SIZE: Final = 8
MIN_MEMBERS: Final = GROUP_SIZE // 2
"""The default of `rollout.min_members`."""
GROUPS_PER_STEP: Final = 50
ROUNDS: Final = 3
"""The default of `rollout.replacement_rounds`."""


@dataclass(frozen=True, kw_only=True)
class Waste:
    """Rollouts that were made, and those of them that the update did not see."""

    rollouts: int
    wasted: int
    rounds: int
    """Rollouts that waited for the end of others before they began, one after the other."""

    @property
    def share(self) -> float:
        """Wasted rollouts, of all."""
        return self.wasted / self.rollouts


def failures(groups: int, share: float, rng: random.Random) -> list[list[bool]]:
    """Return for each member of each group whether it fails: of all rollouts, exactly this share."""
    rollouts = groups * GROUP_SIZE
    failed = set(rng.sample(range(rollouts), round(rollouts * share)))
    return [[group * GROUP_SIZE + member in failed for member in range(GROUP_SIZE)] for group in range(groups)]


def dropped_groups(failed: Sequence[Sequence[bool]]) -> Waste:
    """Drop every group in which a rollout failed."""
    wasted = sum(len(group) for group in failed if any(group))
    return Waste(rollouts=sum(map(len, failed)), wasted=wasted, rounds=0)


def replaced_samples(failed: Sequence[Sequence[bool]], share: float, rng: random.Random) -> Waste:
    """Roll out a further response for each failed one, until it has a score; its group waits for it."""
    rollouts = sum(map(len, failed))
    missing, wasted, rounds = sum(map(sum, failed)), 0, 0
    while missing:
        wasted += missing
        rollouts += missing
        rounds += 1
        missing = sum(rng.random() < share for _ in range(missing))
    return Waste(rollouts=rollouts, wasted=wasted, rounds=rounds)


class Job:
    """Rollouts, score and learner of a training job without a model: what is trained on is counted."""

    def __init__(self, failed: Sequence[Sequence[bool]], share: float, rng: random.Random) -> None:
        self._failed = failed
        self._share = share
        self._rng = rng
        self.rollouts = 0
        self.trained = 0
        self.rounds = 0

    async def roll_out(self, tasks: Sequence[GroupTask[int]], on_end: OnEnd[int, float]) -> None:
        """End every rollout at once, with the score that it would have."""
        for task in tasks:
            self.rollouts += task.size
            for member in range(task.size):
                on_end(task, member, self._rng.random())

    async def score(self, task: GroupTask[int], member: int, rollout: float) -> float | None:
        """Return the score, or None for a rollout that fails; a group that replaces another fails as often."""
        planned = task.index < len(self._failed)
        failed = self._failed[task.index][member] if planned else self._rng.random() < self._share
        return None if failed else rollout

    async def train(self, minibatch: MiniBatch[int, float]) -> None:
        """Count the rollouts that have an advantage."""
        self.rounds += minibatch.sampling_rounds
        for group in minibatch.groups:
            advantages = group_advantages(group.scores, min_members=MIN_MEMBERS)
            self.trained += sum(advantage is not None for advantage in advantages)

    async def publish(self, version: int) -> None:
        """There is no rollout engine to give weights to."""


def trained_without(failed: Sequence[Sequence[bool]], share: float, rng: random.Random) -> Waste:
    """Train each group without its failed members, in the project's own pipeline; replace those with too few scores."""
    job = Job(failed, share, rng)
    teaches: Callable[[Sequence[float | None]], bool] = lambda scores: has_members(scores, MIN_MEMBERS)  # noqa: E731
    pipeline: Pipeline[int, float] = Pipeline(
        plan=Plan(
            steps=len(failed) // GROUPS_PER_STEP,
            groups_per_step=GROUPS_PER_STEP,
            groups_per_minibatch=GROUPS_PER_STEP,
            group_size=GROUP_SIZE,
        ),
        prompts=lambda index: index,
        rollouts=job,
        score=job.score,
        learner=job,
        sampling=DynamicSampling(rounds=ROUNDS, is_informative=teaches),
    )
    asyncio.run(pipeline.run())
    return Waste(rollouts=job.rollouts, wasted=job.rollouts - job.trained, rounds=job.rounds)
