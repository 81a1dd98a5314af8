"""A reward that announces to its pools, by the samples that come, when rollouts begin and end.

For the rewards of trainers that say nothing of their steps. Those that do say it themselves, by `Pool.demand`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._demand.bursts import Bursts
from rewardpool._rewards.config import RewardLike
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.ledger.writer import LedgerReport
from rewardpool._rewards.open import open_reward
from rewardpool._rewards.opened import OpenReward
from rewardpool._rewards.rating import Rating
from rewardpool._rewards.running import RunningMoments


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """Facts about a job that are known beforehand, as `Pool.demand` takes them."""

    samples: int | None = None
    group: int | None = None
    steps: int | None = None
    rank: int | None = None
    ranks: int | None = None


class AnnouncedReward:
    """An `OpenReward` that counts what is in flight; the rest is done by the one that it is made of."""

    def __init__(self, reward: OpenReward, bursts: Bursts) -> None:
        self._reward = reward
        self._bursts = bursts

    @property
    def names(self) -> tuple[str, ...]:
        return self._reward.names

    @property
    def needs_group(self) -> bool:
        return self._reward.needs_group

    @property
    def moments(self) -> RunningMoments | None:
        return self._reward.moments

    @property
    def pools(self) -> Mapping[str, Pool]:
        return self._reward.pools

    @property
    def ledger(self) -> LedgerReport | None:
        return self._reward.ledger

    def flush_ledger(self) -> None:
        self._reward.flush_ledger()

    def requests(self, *, members: int) -> Mapping[str, int]:
        return self._reward.requests(members=members)

    async def rate(self, episode: Episode) -> Rating:
        with self._bursts.sample():
            return await self._reward.rate(episode)

    async def rate_next(self, episode: Episode) -> Rating:
        with self._bursts.sample():
            return await self._reward.rate_next(episode)

    async def rate_group(self, episodes: Sequence[Episode]) -> list[Rating]:
        with self._bursts.sample():
            return await self._reward.rate_group(episodes)

    async def rate_batch(self, episodes: Sequence[Episode]) -> list[Rating]:
        with self._bursts.sample():
            return await self._reward.rate_batch(episodes)

    async def settled(self, episodes: Sequence[Episode], ratings: Sequence[Rating]) -> list[Rating]:
        with self._bursts.sample():
            return await self._reward.settled(episodes, ratings)


@asynccontextmanager
async def open_announced(spec: RewardLike, announcement: JobFacts, **options: Any) -> AsyncIterator[OpenReward]:
    """As `open_reward`, which takes the options, and raises as it and `Pool.demand`; the demand ends with the block."""
    async with open_reward(spec, **options) as reward:
        requests = requests_of_rollout(reward, samples=announcement.samples, group=announcement.group)
        demands = [
            pool.demand(
                samples=requests[name], steps=announcement.steps, rank=announcement.rank, ranks=announcement.ranks
            )
            for name, pool in reward.pools.items()
        ]
        yield AnnouncedReward(reward, Bursts(demands))


def requests_of_rollout(reward: OpenReward, *, samples: int | None, group: int | None) -> Mapping[str, int | None]:
    """Return the requests that a rollout comes to, by pool; None where that is not known.

    Args:
        samples: Of the rollout; None where that is not known.
        group: Of these, the responses to one prompt; None where that is not known, and then nobody knows what it takes
            to compare them.
    """
    if samples is None or (group is None and reward.needs_group):
        return dict.fromkeys(reward.pools)
    members = group or 1
    return {name: requests * samples // members for name, requests in reward.requests(members=members).items()}
