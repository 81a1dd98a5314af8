"""Data types of a pipeline, and the protocols that its user implements: rollouts, a score, a learner.

A step samples responses to some prompts. The responses to one prompt are a group, and are compared with each other. A
mini-batch is a number of complete groups, for one optimiser step. The policy's version is the number of optimiser steps
taken, from 0.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

P = TypeVar("P")  # a prompt, opaque to the pipeline
R = TypeVar("R")  # a rollout, that is one response; opaque to the pipeline
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class GroupTask(Generic[P]):
    """A group to roll out.

    Attributes:
        index: Number of the group in the whole job, from 0; with several ranks, among the groups of this rank.
        size: Number of responses; members count from 0.
        version: Version of the policy when the group began.
        step: Step that the group began for, from 0.
    """

    index: int
    prompt: P
    size: int
    version: int
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class RolledGroup(Generic[P, R]):
    """A group whose rollouts have ended.

    Attributes:
        rollouts: One per member.
    """

    task: GroupTask[P]
    rollouts: Sequence[R]


@dataclass(frozen=True, kw_only=True)
class RatedGroup(RolledGroup[P, R]):
    """A group whose rollouts have ended and are scored.

    Attributes:
        scores: One per member; None for a rollout that is explicitly unscored.
    """

    scores: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class MiniBatch(Generic[P, R]):
    """The groups of one optimiser step.

    Attributes:
        step: Step of the job, from 0.
        number: Number of the mini-batch within its step, from 0.
        version: Version of the policy before this optimiser step.
        groups: Groups to train on.
        rest: Groups of the same step that are trained on later; empty under `fully_async`, which has no steps.
        waited_seconds: Time for which the learner waited for this mini-batch.
        dropped: Groups that were replaced since the last mini-batch, and are never trained on; from the same step,
            except under `fully_async`.
        sampling_rounds: Rounds of dynamic sampling since the last mini-batch.
    """

    step: int
    number: int
    version: int
    groups: Sequence[RatedGroup[P, R]]
    rest: Sequence[RolledGroup[P, R]]
    waited_seconds: float
    dropped: Sequence[RatedGroup[P, R]] = ()
    sampling_rounds: int = 0

    def staleness(self, group: RolledGroup[P, R]) -> int:
        """Return by how many versions a group is older than the policy that it trains."""
        return self.version - group.task.version


# Called as `on_end(task, member, rollout)`, from any thread.
OnEnd = Callable[[GroupTask[P], int, R], None]

Score = Callable[[GroupTask[P], int, R], Awaitable[float | None]]
"""Scores one rollout, called as `score(task, member, rollout)`; None leaves the rollout explicitly unscored. An
exception ends the run."""


@dataclass(frozen=True)
class GroupScore(Generic[P, R]):
    """Scores the rollouts of a group together when the last of them has ended, for example by pairs or as a ranking.

    Attributes:
        judge: Called with the group, returns a score for each member; None leaves a rollout explicitly unscored. An
            exception ends the run.
    """

    judge: Callable[[RolledGroup[P, R]], Awaitable[Sequence[float | None]]]


@dataclass(frozen=True)
class SettledScore(Generic[P, R]):
    """Scores each rollout when it has ended, and checks its group when all of it is scored.

    Attributes:
        score: Scores a rollout.
        is_settled: Called with the group when it has its last score, returns whether these scores are final.
        settle: Called with a group that is not settled, returns its final scores, one per member. An exception ends the
            run.
    """

    score: Score[P, R]
    is_settled: Callable[[RatedGroup[P, R]], bool]
    settle: Callable[[RatedGroup[P, R]], Awaitable[Sequence[float | None]]]


Scoring = Score[P, R] | GroupScore[P, R] | SettledScore[P, R]


class Rollouts(Protocol[P, R_co]):
    """Samples the responses."""

    async def roll_out(self, tasks: Sequence[GroupTask[P]], on_end: OnEnd[P, R_co]) -> None:
        """Sample every member of every task, and call `on_end` for each as soon as it ends; return when all have ended.

        It is cancelled when the run fails or ends, and should then wait for its work on threads. There are no tasks in
        a round of dynamic sampling that only other ranks need.
        """
        ...


class Learner(Protocol[P, R]):
    """Trains the policy."""

    async def train(self, minibatch: MiniBatch[P, R]) -> None:
        """Take one optimiser step."""
        ...

    async def publish(self, version: int) -> None:
        """Give the rollout engine the current weights, which are those of `version`."""
        ...


class Announcer(Protocol):
    """Announces what the job does, so that reward servers are ready when samples come; a `JobDemand` is one."""

    def rollout(self) -> None: ...

    def update(self) -> None:
        """Announce that an update begins, and that no samples come before the next rollout."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Announce, within this block, that the learner waits for scores."""
        ...
