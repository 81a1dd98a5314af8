"""Buffer of groups from their begin to their mini-batch: rollouts and scores are added one by one, in any order."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic

from rewardpool_train.pipeline.parts import GroupTask, P, R, RatedGroup, RolledGroup


@dataclass(kw_only=True)
class OpenGroup(Generic[P, R]):
    """A group that is not trained on yet.

    Attributes:
        scores: Known scores, by member; None for a rollout that is explicitly unscored.
        rolled_at: When the last rollout ended, in seconds of the event loop; before all times in a resumed group.
        arrival: Position in the order in which groups became complete; None until then.
        informative: False for a group that is complete and has no gradient.
    """

    task: GroupTask[P]
    rollouts: dict[int, R] = field(default_factory=dict)
    scores: dict[int, float | None] = field(default_factory=dict)
    rolled_at: float = -math.inf
    arrival: int | None = None
    informative: bool = True

    @property
    def index(self) -> int:
        return self.task.index

    @property
    def version(self) -> int:
        return self.task.version

    @property
    def is_rolled_out(self) -> bool:
        return len(self.rollouts) == self.task.size

    def unscored(self) -> list[tuple[int, R]]:
        """Return the rollouts that have ended without an outcome yet, with their members."""
        return [(member, rollout) for member, rollout in self.rollouts.items() if member not in self.scores]

    def rolled(self) -> RolledGroup[P, R]:
        return RolledGroup(task=self.task, rollouts=[self.rollouts[member] for member in range(self.task.size)])

    def rated(self) -> RatedGroup[P, R]:
        members = range(self.task.size)
        return RatedGroup(
            task=self.task,
            rollouts=[self.rollouts[member] for member in members],
            scores=[self.scores[member] for member in members],
        )


class GroupBuffer(Generic[P, R]):
    """All groups that have begun and are not trained on yet, by index.

    Args:
        is_informative: Returns whether a complete group with these scores has a gradient; None treats every group as
            informative.
    """

    def __init__(self, is_informative: Callable[[Sequence[float | None]], bool] | None = None) -> None:
        self._groups: dict[int, OpenGroup[P, R]] = {}
        self._arrivals = 0
        self._is_informative = is_informative

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, index: int) -> bool:
        return index in self._groups

    def groups(self) -> list[OpenGroup[P, R]]:
        """Return all groups, in the order in which they began."""
        return list(self._groups.values())

    def rolled_out(self) -> list[OpenGroup[P, R]]:
        """Return the groups whose rollouts have all ended; complete groups first, by their arrival."""
        groups = [group for group in self._groups.values() if group.is_rolled_out]
        return sorted(groups, key=lambda group: self._arrivals if group.arrival is None else group.arrival)

    def select(self, indices: Iterable[int]) -> list[OpenGroup[P, R]]:
        return [self._groups[index] for index in indices if index in self._groups]

    def in_step(self, step: int) -> list[OpenGroup[P, R]]:
        """Return the groups that began for a step, ordered by index."""
        groups = [group for group in self._groups.values() if group.task.step == step]
        return sorted(groups, key=attrgetter("task.index"))

    def begin(self, task: GroupTask[P]) -> None:
        self._groups[task.index] = OpenGroup(task=task)

    def add_rollout(self, index: int, member: int, rollout: R) -> OpenGroup[P, R]:
        """Add a rollout and return its group.

        Raises:
            ValueError: The group is not being rolled out, has no such member, or already has its rollout.
        """
        group = self._groups.get(index)
        if group is None or member not in range(group.task.size):
            raise ValueError(f"member {member} of group {index} was not requested")
        if member in group.rollouts:
            raise ValueError(f"member {member} of group {index} has its rollout already")
        group.rollouts[member] = rollout
        return group

    def completed_by(self, index: int, member: int, score: float | None) -> RatedGroup[P, R] | None:
        """Return the group as this score would complete it, without adding the score; None if other scores are missing
        too.
        """
        group = self._groups[index]
        scores = {**group.scores, member: score}
        if len(scores) < group.task.size:
            return None
        return OpenGroup(task=group.task, rollouts=group.rollouts, scores=scores).rated()

    def add_score(self, index: int, member: int, score: float | None) -> bool:
        """Add a score, None for a rollout that is explicitly unscored; return whether its group is complete now."""
        group = self._groups[index]
        group.scores[member] = score
        if len(group.scores) < group.task.size:
            return False
        self._complete(group)
        return True

    def add_scores(self, index: int, scores: Sequence[float | None]) -> None:
        """Add the scores of a whole group, one per member, which completes it; None as for `add_score`.

        Raises:
            ValueError: The number of scores is not the number of members.
        """
        group = self._groups[index]
        if len(scores) != group.task.size:
            raise ValueError(f"group {index} has {group.task.size} members, and was given {len(scores)} scores")
        group.scores = dict(enumerate(scores))
        self._complete(group)

    def _complete(self, group: OpenGroup[P, R]) -> None:
        group.arrival = self._arrivals
        self._arrivals += 1
        if self._is_informative is not None:
            group.informative = self._is_informative(group.rated().scores)

    def pop(self, indices: Sequence[int]) -> list[OpenGroup[P, R]]:
        return [self._groups.pop(index) for index in indices]
