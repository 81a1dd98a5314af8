"""What a pipeline hands around, and the three things that its user brings: rollouts, a score, a learner.

A step asks for responses to some prompts. The responses to one prompt are a group, and are judged against each other;
a mini-batch is some complete groups, and one optimiser step. The policy's version is the number of optimiser steps it
has taken, 0 at first.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

P = TypeVar("P")
"""A prompt, opaque to the pipeline."""
R = TypeVar("R")
"""A rollout, that is one response; opaque to the pipeline."""
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class GroupTask(Generic[P]):
    """A group to be rolled out.

    Attributes:
        index: Its number over the whole job, from 0; on several ranks, over the groups of this rank.
        prompt: What the policy is asked.
        size: Responses wanted; members count from 0.
        version: Of the policy when it was begun.
        step: That it was begun for, from 0.
    """

    index: int
    prompt: P
    size: int
    version: int
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class RolledGroup(Generic[P, R]):
    """A group whose responses are there.

    Attributes:
        task: What was asked.
        rollouts: One per member.
    """

    task: GroupTask[P]
    rollouts: Sequence[R]


@dataclass(frozen=True, kw_only=True)
class RatedGroup(RolledGroup[P, R]):
    """A group whose responses are there and have been judged.

    Attributes:
        scores: One per member; None for one that has explicitly no score.
    """

    scores: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class MiniBatch(Generic[P, R]):
    """What one optimiser step is taken on.

    Attributes:
        step: That it belongs to, from 0.
        number: Of the mini-batch within its step, from 0.
        version: Of the policy before this optimiser step.
        groups: That are trained on.
        rest: Groups of the same step that are trained on after this; empty where a step is no unit (`fully_async`).
        waited_seconds: For which the learner had nothing to do before this was complete.
        dropped: Groups that were replaced since the mini-batch before, and are never trained on; of the same step,
            where a step is a unit.
        sampling_rounds: Rounds of dynamic sampling since the mini-batch before.
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
        """Return how many versions older than the policy that it trains a group is."""
        return self.version - group.task.version


OnEnd = Callable[[GroupTask[P], int, R], None]
"""Called as `on_end(task, member, rollout)`, from any thread."""

Score = Callable[[GroupTask[P], int, R], Awaitable[float | None]]
"""Judges one rollout, called as `score(task, member, rollout)`; None is a rollout explicitly without a score. An
exception ends the run."""


@dataclass(frozen=True)
class GroupScore(Generic[P, R]):
    """Judges the rollouts of a group together, when the last of them has ended: by pairs, say, or as a ranking.

    Attributes:
        judge: Called with the group, returns a score for each member; None is a rollout explicitly without a score. An
            exception ends the run.
    """

    judge: Callable[[RolledGroup[P, R]], Awaitable[Sequence[float | None]]]


@dataclass(frozen=True)
class SettledScore(Generic[P, R]):
    """Judges each rollout when it has ended, and looks at its group again when all of it is judged.

    Attributes:
        score: Judges a rollout.
        is_settled: Called with the group when it has its last score, returns whether it is trained on with its scores.
        settle: Called with a group that is not settled, returns the scores that it is trained on, one for each member.
            An exception ends the run.
    """

    score: Score[P, R]
    is_settled: Callable[[RatedGroup[P, R]], bool]
    settle: Callable[[RatedGroup[P, R]], Awaitable[Sequence[float | None]]]


Scoring = Score[P, R] | GroupScore[P, R] | SettledScore[P, R]


class Rollouts(Protocol[P, R_co]):
    """Where rollouts come from."""

    async def roll_out(self, tasks: Sequence[GroupTask[P]], on_end: OnEnd[P, R_co]) -> None:
        """Sample every member of every task, and call `on_end` for each the moment it ends.

        Returns when all have ended. Cancelled when the run fails or ends; work on a thread should be waited for then.
        There are no tasks where a round of dynamic sampling is for other ranks alone.
        """
        ...


class Learner(Protocol[P, R]):
    """What is trained."""

    async def train(self, minibatch: MiniBatch[P, R]) -> None:
        """Take one optimiser step."""
        ...

    async def publish(self, version: int) -> None:
        """Give the rollout side the weights of now, which are those of `version`."""
        ...


class Announcer(Protocol):
    """Announces what the job does, so that the reward servers can be there when samples come; a `JobDemand` is one."""

    def rollout(self) -> None:
        """A rollout begins."""
        ...

    def update(self) -> None:
        """An update begins, and no samples come before the next rollout."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Within this block the learner waits for scores."""
        ...
