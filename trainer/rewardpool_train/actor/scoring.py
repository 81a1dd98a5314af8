"""From a rollout to its score: what a pipeline's `Score` or `GroupScore` is, where the config's `reward` gives it."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rewardpool.policy_steps import Decode, at_tokens
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.rating import Rating
from rewardpool.rewards.running import RunningMoments
from rewardpool_train.actor.data import Prompt, Rollout
from rewardpool_train.advantages import TokenReward
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, RolledGroup, Score

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


@dataclass(kw_only=True)
class Tally:
    """What became of every sample of a job; filled where it happens, so that `lost` is a finding, not an assumption.

    Attributes:
        submitted: Samples handed over to be rated.
        scored: Those that came back with a score.
        penalties: Those in whose score a penalty stands for what failed, as `on_failure` names it.
        unscored: Those that came back as failed, which their group is trained without.
        given_up: Those that the job itself gave up, because it ended before they were trained on.
    """

    submitted: int = 0
    scored: int = 0
    penalties: int = 0
    unscored: int = 0
    given_up: int = 0

    @property
    def lost(self) -> int:
        """Samples that nothing was heard of."""
        return self.submitted - self.scored - self.penalties - self.unscored - self.given_up

    def enter(self, rating: Rating) -> float | None:
        """Count one rating and return its total, or None."""
        if rating.total is None:
            self.unscored += 1
        elif rating.error is not None:
            self.penalties += 1
        else:
            self.scored += 1
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

    def in_pipeline(self) -> Score[Prompt, Rollout] | GroupScore[Prompt, Rollout]:
        """Return what a pipeline asks: of whole groups where the reward needs them, else of each rollout at its end."""
        return GroupScore(self.judge) if self._reward.needs_group else self.score

    async def score(self, task: GroupTask[Prompt], member: int, rollout: Rollout) -> float | None:
        """Return the rollout's score; None where the failure policy leaves it unscored.

        Raises:
            SampleError: It has no score and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        episode = self._to_episode(task, member, rollout)
        rating = await self._answer(self._reward.submit(episode), samples=1)
        self._components[task.index, member] = rating.components
        if self._decode is not None and rating.total is not None:
            token_ids = rollout.response_ids
            self._steps[task.index, member] = await asyncio.to_thread(
                at_tokens, rating, episode, token_ids, self._decode
            )
        return self._tally.enter(rating)

    async def judge(self, group: RolledGroup[Prompt, Rollout]) -> list[float | None]:
        """Return the scores of a group that is rated as a whole; None where the failure policy leaves one unscored.

        There are no rewards of steps here: what gives those is a reward of one part, which rates single rollouts.

        Raises:
            SampleError: A rollout has no score and the failure policy is `raise`.
            PoolError: A pool cannot be used.
        """
        task = group.task
        episodes = [self._to_episode(task, member, rollout) for member, rollout in enumerate(group.rollouts)]
        ratings = await self._answer(self._reward.submit_group(episodes), samples=task.size)
        for member, rating in enumerate(ratings):
            self._components[task.index, member] = rating.components
        return [self._tally.enter(rating) for rating in ratings]

    async def _answer(self, answer: concurrent.futures.Future[T], *, samples: int) -> T:
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

    def take_components(self, task: GroupTask[Prompt]) -> list[Components]:
        """Return the raw scores of a group's rollouts, and forget them."""
        found = self.components(task)
        for member in range(task.size):
            self._components.pop((task.index, member), None)
            self._steps.pop((task.index, member), None)
        return found

    def to_json(self, groups: Iterable[int]) -> list[Any]:
        """Return the raw scores of these groups' rollouts, and the rewards of their steps, for a checkpoint."""
        kept = set(groups)
        return [
            [*key, components, self._steps.get(key)] for key, components in self._components.items() if key[0] in kept
        ]

    def restore(self, data: Sequence[Any]) -> None:
        """Go on from what `to_json` made."""
        self._components = {(group, member): components for group, member, components, *_ in data}
        self._steps = {
            (group, member): [(token, value) for token, value in steps]
            for group, member, _, *further in data
            for steps in further
            if steps is not None
        }
