"""Score rollouts with the config's `reward`, as a pipeline's scoring."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rewardpool._policy.steps import Decode, at_tokens
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.one_revision import differ
from rewardpool._rewards.rating import Rating
from rewardpool._rewards.running import RunningMoments
from rewardpool._score_waits import ScoreWaits
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.advantages import TokenReward
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, RatedGroup, RolledGroup, SettledScore

T = TypeVar("T")

Components = Mapping[str, float | None]  # raw scores of a response by part; None for a part without one


class Rater(Protocol):
    """The methods of a `BlockingReward` that are needed here."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def moments(self) -> RunningMoments | None:
        """Moments of the scores of earlier steps, if a part is scaled by them."""
        ...

    @property
    def needs_group(self) -> bool:
        """True if episodes must be rated by `submit_group`."""
        ...

    def record_waits(self, waits: ScoreWaits) -> None: ...

    def submit(self, episode: Episode) -> concurrent.futures.Future[Rating]: ...

    def submit_group(self, episodes: Sequence[Episode]) -> concurrent.futures.Future[list[Rating]]: ...

    def submit_settled(
        self, episodes: Sequence[Episode], ratings: Sequence[Rating]
    ) -> concurrent.futures.Future[list[Rating]]:
        """Start rating again, by one revision of each pool, a group whose episodes were rated one by one."""
        ...


@dataclass(kw_only=True)
class OutcomeTally:
    """Counts of a job's samples by outcome, counted where they occur, so that `lost` is measured.

    Attributes:
        penalties: Samples whose score has a penalty in place of a failed part, see `on_failure`.
        unscored: Failed samples, which their group is trained without.
        given_up: Samples that the job cancelled, because it ended before they were trained on.
        asked_again: Samples that were rated again because two revisions of a pool had rated their group.
    """

    submitted: int = 0
    scored: int = 0
    penalties: int = 0
    unscored: int = 0
    given_up: int = 0
    asked_again: int = 0
    groups_asked_again: int = 0

    @property
    def lost(self) -> int:
        """Number of samples without an outcome."""
        return self.submitted - self.scored - self.penalties - self.unscored - self.given_up

    def record(self, rating: Rating, count: int = 1) -> float | None:
        """Count a rating, or with a `count` of -1 remove it, and return its total."""
        if rating.total is None:
            self.unscored += count
        elif rating.error is not None:
            self.penalties += count
        else:
            self.scored += count
        return rating.total


class RewardScore:
    """Rates rollouts, and keeps their components until they are trained on.

    Args:
        reward: Rates on its own thread.
        decode: Decodes token ids of the policy to the text of a response, to find the tokens in which steps end. None
            if responses are rewarded as a whole.
    """

    def __init__(
        self,
        reward: Rater,
        *,
        to_episode: Callable[[GroupTask[Prompt], int, Trajectory], Episode],
        tally: OutcomeTally,
        decode: Decode | None = None,
    ) -> None:
        self._reward = reward
        self._to_episode = to_episode
        self._tally = tally
        self._decode = decode
        self._components: dict[tuple[int, int], Components] = {}
        self._steps: dict[tuple[int, int], Sequence[TokenReward]] = {}
        self._ratings: dict[tuple[int, int], Rating] = {}  # of groups that are incomplete or not settled

    def as_scoring(self) -> GroupScore[Prompt, Trajectory] | SettledScore[Prompt, Trajectory]:
        """Return a pipeline's scoring: of whole groups if the reward needs them, otherwise of each rollout at its
        end.
        """
        if self._reward.needs_group:
            return GroupScore(self.judge)
        return SettledScore(self.score, self.is_settled, self.settle)

    async def score(self, task: GroupTask[Prompt], member: int, rollout: Trajectory) -> float | None:
        """Return the rollout's score; None if the failure policy leaves it unscored.

        Raises:
            SampleError: It failed, and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        episode = self._to_episode(task, member, rollout)
        rating = await self._await_rating(self._reward.submit(episode), samples=1)
        await self._store(task, member, rollout, episode, rating)
        self._ratings[task.index, member] = rating
        return self._tally.record(rating)

    def is_settled(self, group: RatedGroup[Prompt, Trajectory]) -> bool:
        """Return whether one revision of each pool rated the group; if so, its ratings are no longer kept."""
        task = group.task
        ratings = (self._ratings.get((task.index, member)) for member in range(task.size))
        if differ(rating.revisions for rating in ratings if rating is not None):
            return False
        self._forget_ratings(task)
        return True

    async def settle(self, group: RatedGroup[Prompt, Trajectory]) -> list[float | None]:
        """Return the scores of a group after those of another revision are requested again.

        Raises:
            SampleError: A rollout failed, and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        task = group.task
        episodes = [self._to_episode(task, member, rollout) for member, rollout in enumerate(group.rollouts)]
        before = [self._ratings[task.index, member] for member in range(task.size)]
        after = await asyncio.wrap_future(self._reward.submit_settled(episodes, before))
        anew = [member for member in range(task.size) if after[member] is not before[member]]
        for member in anew:
            await self._store(task, member, group.rollouts[member], episodes[member], after[member])
            self._tally.record(before[member], -1)
            self._tally.record(after[member])
        self._tally.asked_again += len(anew)
        self._tally.groups_asked_again += bool(anew)
        self._forget_ratings(task)
        return [rating.total for rating in after]

    async def _store(
        self, task: GroupTask[Prompt], member: int, rollout: Trajectory, episode: Episode, rating: Rating
    ) -> None:
        self._components[task.index, member] = rating.components
        self._steps.pop((task.index, member), None)
        if self._decode is not None and rating.total is not None:
            token_ids = rollout.response_ids
            self._steps[task.index, member] = await asyncio.to_thread(
                at_tokens, rating, episode, token_ids, self._decode
            )

    def _forget_ratings(self, task: GroupTask[Prompt]) -> None:
        for member in range(task.size):
            self._ratings.pop((task.index, member), None)

    async def judge(self, group: RolledGroup[Prompt, Trajectory]) -> list[float | None]:
        """Return the scores of a group that is rated as a whole; None if the failure policy leaves one unscored.

        There are no rewards of steps here: only a reward of one part, which rates single rollouts, has those.

        Raises:
            SampleError: A rollout failed, and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        task = group.task
        episodes = [self._to_episode(task, member, rollout) for member, rollout in enumerate(group.rollouts)]
        ratings = await self._await_rating(self._reward.submit_group(episodes), samples=task.size)
        for member, rating in enumerate(ratings):
            self._components[task.index, member] = rating.components
        return [self._tally.record(rating) for rating in ratings]

    async def _await_rating(self, answer: concurrent.futures.Future[T], *, samples: int) -> T:
        self._tally.submitted += samples
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            self._tally.given_up += samples
            raise

    def steps(self, task: GroupTask[Prompt]) -> list[Sequence[TokenReward] | None]:
        """Return the rewards of the steps of a group's rollouts; None for an unscored rollout."""
        return [self._steps.get((task.index, member)) for member in range(task.size)]

    def components(self, task: GroupTask[Prompt]) -> list[Components]:
        found = (self._components.get((task.index, member)) for member in range(task.size))
        return [components for components in found if components is not None]

    def pop_components(self, task: GroupTask[Prompt]) -> list[Components]:
        found = self.components(task)
        for member in range(task.size):
            self._components.pop((task.index, member), None)
            self._steps.pop((task.index, member), None)
        return found

    def to_json(self, groups: Iterable[int]) -> list[Any]:
        """Return the groups' raw scores, step rewards and ratings, for a checkpoint."""
        kept = set(groups)
        return [
            [*key, components, self._steps.get(key), _to_json(self._ratings.get(key))]
            for key, components in self._components.items()
            if key[0] in kept
        ]

    def restore(self, data: Sequence[Any]) -> None:
        self._components, self._steps, self._ratings = {}, {}, {}
        for group, member, components, steps, rated in data:
            key = (group, member)
            self._components[key] = components
            if steps is not None:
                self._steps[key] = [(token, value) for token, value in steps]
            if rated is not None:
                total, revisions = rated
                known = {pool: tuple(seen) for pool, seen in revisions.items()}
                self._ratings[key] = Rating(total=total, components=components, revisions=known)


def _to_json(rating: Rating | None) -> Any:
    return None if rating is None else [rating.total, rating.revisions]
