"""Dynamic sampling: groups that teach nothing are replaced by groups of further prompts before they are trained on.

A group teaches nothing if too few of its responses have a score, or if its scores are all equal, so that it has no
gradient. DAPO (Yu et al. 2025, arXiv:2503.14476, section 3.2) samples on until a step has as many groups as it asked
for that do have one. Here that goes in rounds: before each mini-batch a rank looks at the groups of the step. If they
cannot fill it, those that teach nothing are dropped, and as many others are begun. So a step has the same number of
groups at any time, and each of them is trained on or dropped, never both.

A round is an operation of all ranks, because they go through the same sequence. A rank that has enough groups for its
mini-batch takes part with those that it knows to be of no use, or with none. After the last round what is there is
trained.

Where rollout and training are apart (`fully_async`) there are no steps and no rounds that ranks share. There a rank
drops such a group when it is complete, and others begin as there is room for them: for each mini-batch as many as the
rounds of a step would replace for it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rewardpool_train.pipeline.schedule import Order, Outstanding, Plan, Schedule, choose_within_step


async def one_rank(missing: int) -> int:
    """Return what a job of one rank misses: that."""
    return missing


@dataclass(frozen=True, kw_only=True)
class DynamicSampling:
    """How groups that teach nothing are replaced.

    Attributes:
        rounds: In a step, at most; under `fully_async`, mini-batches' worth of groups, for each mini-batch.
        is_informative: Says of the scores of a group whether it teaches anything; the same of the same scores.
        most: Called with the groups that this rank misses for its next mini-batch, returns the most that a rank misses.
            All ranks call it at the same point of their sequence of operations.

    Raises:
        ValueError: There would be no round.
    """

    rounds: int
    is_informative: Callable[[Sequence[float | None]], bool]
    most: Callable[[int], Awaitable[int]] = one_rank

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}; it must be at least 1")


class JudgedGroup(Outstanding, Protocol):
    """A group of a step, as it is looked at here."""

    @property
    def informative(self) -> bool:
        """False for a group that is complete and teaches nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a look at a step's groups came to.

    Attributes:
        chosen: The indices of the next mini-batch; none where there are too few groups for it.
        useless: Those that a round would replace.
    """

    chosen: list[int]
    useless: list[int] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Groups without which there is no mini-batch, at most; 0 where there is one."""
        return 0 if self.chosen else len(self.useless)


def select(groups: Sequence[JudgedGroup], schedule: Schedule, plan: Plan, *, order: Order) -> Selection | None:
    """Return the next mini-batch of informative groups, or what there is instead; None where scores decide that.

    By `prompt`, and where the whole step is waited for, the answer depends on the scores alone and not on their timing.

    Args:
        groups: Those of the step that are not trained on yet, in the order of their indices.
        schedule: Says whether the whole step is waited for.
        plan: Of the job.
        order: Of the groups.
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
    """Return whether a round comes: some rank misses groups, and a step's rounds are not used up.

    Args:
        missing: The most that a rank misses for its next mini-batch.
        done: Rounds of this step.
        at_most: Rounds of a step.
    """
    return missing > 0 and done < at_most
