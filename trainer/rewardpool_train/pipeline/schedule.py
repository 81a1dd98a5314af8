"""The five schedules, as a table, and what may happen next under each.

    sync          R0 s T0     R1 s T1     R2 s T2        R: a step is rolled out    T: it is trained
    minibatch     R0 t t t t  R1 t t t t  R2 t t t t     s: all of its scores are waited for
    one_step_off  R0 R1 s T0  R2 s T1     R3 s T2        t: a mini-batch is trained as soon as its groups are complete
    both          R0 R1 t t t t  R2 t t t t  R3
    fully_async   R R R R R R R R R R R R                on other devices than
                      t t t t t t t t t t t t

In the first four rollout and training take turns on the same devices, and the sequence of operations follows from the
table alone. That is what lets the ranks of a job go through it without a word: which groups are in a mini-batch depends
on when scores come, but which operation is next does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

ScheduleName = Literal["sync", "minibatch", "one_step_off", "one_step_off_minibatch", "fully_async"]

Order = Literal["arrival", "prompt"]
"""Which complete groups are trained on first: those that were complete first, or those of the earlier prompts."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How rollout, reward and training follow each other.

    Attributes:
        ahead: Steps that are rolled out before the first of them is trained, beyond that one.
        by_minibatch: A mini-batch is trained when its own groups are complete; else when its step's are.
        disaggregated: Rollout and training run at the same time on different devices; `ahead` says nothing then.
    """

    ahead: int
    by_minibatch: bool
    disaggregated: bool = False


SCHEDULES: dict[ScheduleName, Schedule] = {
    "sync": Schedule(ahead=0, by_minibatch=False),
    "minibatch": Schedule(ahead=0, by_minibatch=True),
    "one_step_off": Schedule(ahead=1, by_minibatch=False),
    "one_step_off_minibatch": Schedule(ahead=1, by_minibatch=True),
    "fully_async": Schedule(ahead=0, by_minibatch=True, disaggregated=True),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is to be done, on one rank.

    Attributes:
        steps: To be trained.
        groups_per_step: To be rolled out for each.
        groups_per_minibatch: A divisor of these.
        group_size: Responses to each prompt.

    Raises:
        ValueError: One of them is less than 1, or a step cannot be cut into mini-batches.
    """

    steps: int
    groups_per_step: int
    groups_per_minibatch: int
    group_size: int

    def __post_init__(self) -> None:
        if min(self.steps, self.groups_per_step, self.groups_per_minibatch, self.group_size) < 1:
            raise ValueError("steps, groups_per_step, groups_per_minibatch and group_size must be at least 1")
        if self.groups_per_step % self.groups_per_minibatch:
            raise ValueError(
                f"groups_per_step is {self.groups_per_step}, which is no multiple of groups_per_minibatch, "
                f"{self.groups_per_minibatch}"
            )

    @property
    def minibatches_per_step(self) -> int:
        """Optimiser steps for each step."""
        return self.groups_per_step // self.groups_per_minibatch

    @property
    def groups(self) -> int:
        """In the whole job."""
        return self.steps * self.groups_per_step


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
        rolled_out: Steps whose rollouts are all there.
        trained: Mini-batches that were trained on, which is the policy's version.
        published: The version that the rollout side has; -1 where that is not known.
    """

    rolled_out: int = 0
    trained: int = 0
    published: int = 0


@dataclass(frozen=True)
class RollOut:
    """Roll out the groups of a step."""

    step: int


@dataclass(frozen=True)
class Train:
    """Train on a mini-batch of a step, as soon as there is one."""

    step: int
    number: int


@dataclass(frozen=True)
class Publish:
    """Give the rollout side the weights of this version."""

    version: int


@dataclass(frozen=True)
class Done:
    """There is nothing left to do."""


Operation = RollOut | Train | Publish | Done


def next_operation(schedule: Schedule, plan: Plan, progress: Progress, *, publish_every: int = 1) -> Operation:
    """Return what the learner's devices do next.

    Where rollout and training take turns, weights are published after each step; where they are apart, after every
    `publish_every` updates, and a `RollOut` is never the answer: `staleness` says what the rollout side does.
    """
    step, number = divmod(progress.trained, plan.minibatches_per_step)
    unit = publish_every if schedule.disaggregated else plan.minibatches_per_step
    last = progress.trained - progress.trained % unit
    if progress.published < 0 or (progress.published < last) or _ends_unpublished(plan, progress):
        return Publish(progress.trained)
    if step == plan.steps:
        return Done()
    if not schedule.disaggregated and progress.rolled_out < min(plan.steps, step + schedule.ahead + 1):
        return RollOut(progress.rolled_out)
    return Train(step, number)


def _ends_unpublished(plan: Plan, progress: Progress) -> bool:
    everything = plan.steps * plan.minibatches_per_step
    return progress.trained == everything and progress.published < everything


class Outstanding(Protocol):
    """A group that was begun and not yet trained on, as the choice of a mini-batch sees it."""

    @property
    def index(self) -> int:
        """Its number."""
        ...

    @property
    def version(self) -> int:
        """That it was begun under."""
        ...

    @property
    def arrival(self) -> int | None:
        """Its place in the order in which groups became complete; None where it is not complete."""
        ...


def choose_within_step(
    groups: Sequence[Outstanding], schedule: Schedule, plan: Plan, *, order: Order
) -> list[int] | None:
    """Return the indices of a step's next mini-batch, or None where its groups are not complete yet.

    Where the whole step is waited for, nothing is won by the order of arrival, and prompts keep theirs.

    Args:
        groups: Those of the step that are not trained on yet, in the order of their indices.
        schedule: Says whether the whole step is waited for.
        plan: Of the job.
        order: Of the groups.
    """
    size = plan.groups_per_minibatch
    complete = [group for group in groups if group.arrival is not None]
    if len(complete) < (size if schedule.by_minibatch else len(groups)):
        return None
    if schedule.by_minibatch and order == "arrival":
        return [group.index for group in sorted(complete, key=lambda group: group.arrival or 0)[:size]]
    first = [group.index for group in groups[:size]]
    return first if first == [group.index for group in complete[:size]] else None
