"""The five schedules, as a table, and the next operation under each.

    sync          R0 s T0     R1 s T1     R2 s T2        R: a step is rolled out    T: it is trained
    minibatch     R0 t t t t  R1 t t t t  R2 t t t t     s: all of its scores are waited for
    one_step_off  R0 R1 s T0  R2 s T1     R3 s T2        t: a mini-batch is trained as soon as its groups are complete
    both          R0 R1 t t t t  R2 t t t t  R3
    fully_async   R R R R R R R R R R R R                on other devices than
                      t t t t t t t t t t t t

In the first four, rollout and training take turns on the same devices, and the sequence of operations follows from the
table alone. So the ranks of a job need no messages to agree on it: the groups in a mini-batch depend on when scores
come, but the next operation does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

ScheduleName = Literal["sync", "minibatch", "one_step_off", "one_step_off_minibatch", "fully_async"]

Order = Literal["arrival", "prompt"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Overlap of rollout, reward and training.

    Attributes:
        ahead: Number of further steps that are rolled out before a step is trained.
        by_minibatch: Train a mini-batch when its own groups are complete; otherwise when all groups of its step are.
        disaggregated: Rollout and training run at the same time on different devices; `ahead` is not used.
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
    """Amount of work, on one rank.

    Attributes:
        steps: Steps to train.
        groups_per_step: Groups to roll out per step.
        groups_per_minibatch: A divisor of `groups_per_step`.
        group_size: Responses to each prompt.

    Raises:
        ValueError: A number is less than 1, or a step cannot be divided into mini-batches.
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
                f"groups_per_step is {self.groups_per_step}; it must be a multiple of groups_per_minibatch, "
                f"which is {self.groups_per_minibatch}"
            )

    @property
    def minibatches_per_step(self) -> int:
        """Number of optimiser steps per step."""
        return self.groups_per_step // self.groups_per_minibatch

    @property
    def groups(self) -> int:
        """Number of groups in the whole job."""
        return self.steps * self.groups_per_step


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """Progress of a job.

    Attributes:
        rolled_out: Steps whose rollouts have all ended.
        trained: Mini-batches trained on, which is the policy's version.
        published: Version of the rollout engine's weights; -1 if unknown.
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
    """Train on a mini-batch of a step, as soon as it is complete."""

    step: int
    number: int


@dataclass(frozen=True)
class Publish:
    """Give the rollout engine the weights of this version."""

    version: int


@dataclass(frozen=True)
class Done:
    """All operations are done."""


Operation = RollOut | Train | Publish | Done


def next_operation(schedule: Schedule, plan: Plan, progress: JobProgress, *, publish_every: int = 1) -> Operation:
    """Return the next operation of the learner's devices.

    Weights are published after each step, or under `fully_async` after every `publish_every` updates. `fully_async` has
    no `RollOut` here: `staleness` decides when its groups begin.
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


def _ends_unpublished(plan: Plan, progress: JobProgress) -> bool:
    everything = plan.steps * plan.minibatches_per_step
    return progress.trained == everything and progress.published < everything


class Outstanding(Protocol):
    """A group that has begun and is not trained on yet, as the selection of a mini-batch sees it."""

    @property
    def index(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def arrival(self) -> int | None:
        """Position in the order in which groups became complete; None until then."""
        ...


def choose_within_step(
    groups: Sequence[Outstanding], schedule: Schedule, plan: Plan, *, order: Order
) -> list[int] | None:
    """Return the indices of a step's next mini-batch, or None while its groups are not complete.

    Args:
        groups: Groups of the step that are not trained on yet, ordered by index.
    """
    size = plan.groups_per_minibatch
    complete = [group for group in groups if group.arrival is not None]
    if len(complete) < (size if schedule.by_minibatch else len(groups)):
        return None
    # A schedule that waits for the whole step gains nothing from the order of arrival.
    if schedule.by_minibatch and order == "arrival":
        return [group.index for group in sorted(complete, key=lambda group: group.arrival or 0)[:size]]
    first = [group.index for group in groups[:size]]
    return first if first == [group.index for group in complete[:size]] else None
