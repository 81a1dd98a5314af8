"""Dynamic sampling: groups without a gradient are replaced by groups of other prompts before training.

A group is useless if too few of its responses have a score, or if all of its scores are equal: then it has no gradient.
DAPO (Yu et al. 2025, arXiv:2503.14476, section 3.2) samples until a step has enough useful groups. Here this happens in
rounds: before each mini-batch a rank checks the groups of the step. If the useful ones cannot fill it, the others are
dropped, and as many new groups begin. So a step always has the same number of groups, and each group is either trained
on or dropped.

All ranks take part in a round, because they go through the same sequence of operations. A rank with enough groups for
its mini-batch replaces those that it knows to be useless, possibly none. After the last round, the groups are trained
on as they are.

Under `fully_async` there are no steps, and ranks share no rounds. A rank drops a useless group as soon as it is
complete, and new groups begin when there is capacity: at most as many per mini-batch as the rounds of a step would
replace for it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rewardpool_train.pipeline.schedule import Order, Outstanding, Plan, Schedule, choose_within_step


async def one_rank(missing: int) -> int:
    """Return `missing`: the maximum over the ranks of a job that has one."""
    return missing


@dataclass(frozen=True, kw_only=True)
class DynamicSampling:
    """Rule by which groups without a gradient are replaced.

    Attributes:
        rounds: Maximum number of rounds per step; under `fully_async`, the maximum number of replaced groups per
            mini-batch, in mini-batches.
        is_informative: Returns whether a group with these scores has a gradient; a pure function.
        most: Called with the number of groups that this rank lacks for its next mini-batch; returns the maximum over
            all ranks. All ranks call it at the same point of their sequence of operations.

    Raises:
        ValueError: `rounds` is less than 1.
    """

    rounds: int
    is_informative: Callable[[Sequence[float | None]], bool]
    most: Callable[[int], Awaitable[int]] = one_rank

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}; it must be at least 1")


class JudgedGroup(Outstanding, Protocol):
    """A group of a step, as dynamic sampling sees it."""

    @property
    def informative(self) -> bool:
        """False for a group that is complete and has no gradient."""
        ...


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Groups of a step, as selected for its next mini-batch.

    Attributes:
        chosen: Indices of the next mini-batch; empty if there are too few groups for it.
        useless: Indices of the groups that a round would replace.
    """

    chosen: list[int]
    useless: list[int] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Maximum number of groups that the next mini-batch lacks; 0 if it is complete."""
        return 0 if self.chosen else len(self.useless)


def select(groups: Sequence[JudgedGroup], schedule: Schedule, plan: Plan, *, order: Order) -> Selection | None:
    """Return the next mini-batch of informative groups, or why there is none; None while it depends on scores to come.

    With order `prompt`, or a schedule that waits for the whole step, the result does not depend on the scores' timing.

    Args:
        groups: Groups of the step that are not trained on yet, ordered by index.
    """
    useless = [group.index for group in groups if not group.informative]
    if schedule.by_minibatch or not useless:
        informative = [group for group in groups if group.informative]
        chosen = choose_within_step(informative, schedule, plan, order=order)
        if chosen is not None:
            known = [index for index in useless if order == "arrival" or index < chosen[-1]]
            return Selection(chosen=chosen, useless=known)
    if all(group.arrival is not None for group in groups):
        return Selection(chosen=[], useless=useless)
    return None


def needs_round(*, missing: int, done: int, at_most: int) -> bool:
    """Return whether another round is needed and allowed.

    Args:
        missing: Maximum number of groups that a rank lacks for its next mini-batch.
    """
    return missing > 0 and done < at_most
