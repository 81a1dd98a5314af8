"""A reward together with what announces its demand: what both ways into verl rate by."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rewardpool.client.shared import shared
from rewardpool.demand.bursts import Bursts
from rewardpool.rewards import Episode, Rating, Reward, open_reward
from rewardpool.verl.bursts import announced_bursts


class Rater:
    """Rates episodes, and lets the pools know when they come."""

    def __init__(self, reward: Reward, bursts: Bursts) -> None:
        self.reward = reward
        self._bursts = bursts

    async def rate(self, episode: Episode) -> Rating:
        """Rate one episode; raises what `Reward.rate` does."""
        with self._bursts.sample():
            return await self.reward.rate(episode)


async def shared_rater(
    spec: Mapping[str, Any], *, path: str, samples: int | None = None, workers: int | None = None
) -> Rater:
    """The rater of a spec on this event loop.

    Args:
        spec: For `open_reward`.
        path: Where the spec is in the config, for messages.
        samples: Of one rollout, over all reward workers.
        workers: How many reward workers share them; None where that is not known.

    Raises:
        RewardPoolError: What `open_reward` raises.
    """
    name = json.dumps(spec, sort_keys=True, default=repr)
    return await shared().get(f"rater {name}", lambda: _open_rater(spec, path=path, samples=samples, workers=workers))


@asynccontextmanager
async def _open_rater(
    spec: Mapping[str, Any], *, path: str, samples: int | None, workers: int | None
) -> AsyncIterator[Rater]:
    async with open_reward(spec, path=path) as reward:
        yield Rater(reward, announced_bursts(reward.pools.values(), samples=samples, workers=workers))
