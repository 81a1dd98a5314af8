"""From a rollout to its score: what a pipeline's scoring is, where the config's `reward` gives it."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rewardpool.policy_steps import Decode, at_tokens
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.one_revision import differ
from rewardpool.rewards.rating import Rating
from rewardpool.rewards.running import RunningMoments
from rewardpool_train.actor.data import Prompt, Rollout
from rewardpool_train.advantages import TokenReward
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, RatedGroup, RolledGroup, SettledScore

T = TypeVar("T")

Components = Mapping[str, float | None]
"""The raw scores of a response by part; None where a part has none."""


class Rater(Protocol):
    """What is needed of a `BlockingReward`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parts."""
        ...

    @property
    def moments(self) -> RunningMoments | None:
        """Of the scores of earlier steps, where a part of it is scaled by them."""
        ...

    @property
    def needs_group(self) -> bool:
        """Whether only `submit_group` will do."""
        ...

    def submit(self, episode: Episode) -> concurrent.futures.Future[Rating]:
        """Start rating an episode."""
        ...

    def submit_group(self, episodes: Sequence[Episode]) -> concurrent.futures.Future[list[Rating]]:
        """Start rating the episodes of a group together."""
        ...

    def submit_settled(
        self, episodes: Sequence[Episode], ratings: Sequence[Rating]
    ) -> concurrent.futures.Future[list[Rating]]:
        """Start having one revision of each pool rate a group whose episodes were rated one by one."""
        ...


@dataclass(kw_only=True)
class Tally:
    """What became of every sample of a job; filled where it happens, so that `lost` is a finding, not an assumption.

    Attributes:
        submitted: Samples handed over to be rated.
        scored: Those that came back with a score.
        penalties: Those in whose score a penalty stands for what failed, as `on_failure` names it.
        unscored: Those that came back as failed, which their group is trained without.
        given_up: Those that the job itself gave up, because it ended before they were trained on.
        asked_again: Those that were rated again because two revisions of a pool had rated their group.
        groups_asked_again: The groups of these.
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
        """Samples that nothing was heard of."""
        return self.submitted - self.scored - self.penalties - self.unscored - self.given_up

    def record(self, rating: Rating, count: int = 1) -> float | None:
        """Count one rating, or with -1 take it back, and return its total, or None."""
        if rating.total is None:
            self.unscored += count
        elif rating.error is not None:
            self.penalties += count
        else:
            self.scored += count
        return rating.total


class RewardScore:
    """Has rollouts rated, and keeps what the reward's parts said of each until it is trained on.

    Args:
        reward: That rates, on a thread of its own.
        to_episode: Returns what it is given for a rollout.
        tally: Counts.
        decode: From token ids of the policy to the text of an episode's response; finds the tokens in which steps end.
            None where responses are rewarded as a whole.
    """

    def __init__(
        self,
        reward: Rater,
        *,
        to_episode: Callable[[GroupTask[Prompt], int, Rollout], Episode],
        tally: Tally,
        decode: Decode | None = None,
    ) -> None:
        self._reward = reward
        self._to_episode = to_episode
        self._tally = tally
        self._decode = decode
        self._components: dict[tuple[int, int], Components] = {}
        self._steps: dict[tuple[int, int], Sequence[TokenReward]] = {}
        self._ratings: dict[tuple[int, int], Rating] = {}
        """Of groups that have not all of their ratings, or are not settled."""

    def as_scoring(self) -> GroupScore[Prompt, Rollout] | SettledScore[Prompt, Rollout]:
        """Return what a pipeline asks: of whole groups where the reward needs them, else of each rollout at its end."""
        if self._reward.needs_group:
            return GroupScore(self.judge)
        return SettledScore(self.score, self.is_settled, self.settle)

    async def score(self, task: GroupTask[Prompt], member: int, rollout: Rollout) -> float | None:
        """Return the rollout's score; None where the failure policy leaves it unscored.

        Raises:
            SampleError: It has no score and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        episode = self._to_episode(task, member, rollout)
        rating = await self._await_rating(self._reward.submit(episode), samples=1)
        await self._store(task, member, rollout, episode, rating)
        self._ratings[task.index, member] = rating
        return self._tally.record(rating)

    def is_settled(self, group: RatedGroup[Prompt, Rollout]) -> bool:
        """Return whether no two revisions of a pool rated the rollouts of a group; forgets who rated it, if so."""
        task = group.task
        ratings = (self._ratings.get((task.index, member)) for member in range(task.size))
        if differ(rating.revisions for rating in ratings if rating is not None):
            return False
        self._forget_ratings(task)
        return True

    async def settle(self, group: RatedGroup[Prompt, Rollout]) -> list[float | None]:
        """Return the scores of a group after those that another revision gave are asked for again.

        Raises:
            SampleError: A rollout has no score now, and the failure policy is `raise`.
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
        self, task: GroupTask[Prompt], member: int, rollout: Rollout, episode: Episode, rating: Rating
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

    async def judge(self, group: RolledGroup[Prompt, Rollout]) -> list[float | None]:
        """Return the scores of a group that is rated as a whole; None where the failure policy leaves one unscored.

        There are no rewards of steps here: what gives those is a reward of one part, which rates single rollouts.

        Raises:
            SampleError: A rollout has no score and the failure policy is `raise`.
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
        """Return the rewards of the steps of a group's rollouts; None for one without a score."""
        return [self._steps.get((task.index, member)) for member in range(task.size)]

    def components(self, task: GroupTask[Prompt]) -> list[Components]:
        """Return the raw scores of a group's rollouts."""
        found = (self._components.get((task.index, member)) for member in range(task.size))
        return [components for components in found if components is not None]

    def pop_components(self, task: GroupTask[Prompt]) -> list[Components]:
        """Return the raw scores of a group's rollouts, and forget them."""
        found = self.components(task)
        for member in range(task.size):
            self._components.pop((task.index, member), None)
            self._steps.pop((task.index, member), None)
        return found

    def to_json(self, groups: Iterable[int]) -> list[Any]:
        """Return for a checkpoint these groups' raw scores, the rewards of their steps, and who scored."""
        kept = set(groups)
        return [
            [*key, components, self._steps.get(key), _to_json(self._ratings.get(key))]
            for key, components in self._components.items()
            if key[0] in kept
        ]

    def restore(self, data: Sequence[Any]) -> None:
        """Go on from what `to_json` made."""
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
