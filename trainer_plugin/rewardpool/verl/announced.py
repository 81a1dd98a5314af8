"""A reward whose demand is announced, open once per process and event loop: what both ways into verl rate by."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rewardpool.client.shared import shared
from rewardpool.rewards import OpenReward, open_reward
from rewardpool.rewards.announced import AnnouncedReward
from rewardpool.verl.bursts import announced_bursts


async def shared_reward(
    spec: Mapping[str, Any], *, path: str, samples: int | None = None, workers: int | None = None
) -> OpenReward:
    """The reward of a spec on this event loop.

    Args:
        spec: For `open_reward`.
        path: Where the spec is in the config, for messages.
        samples: Of one rollout, over all reward workers.
        workers: How many reward workers share them; None where that is not known.

    Raises:
        RewardPoolError: What `open_reward` raises.
    """
    name = json.dumps(spec, sort_keys=True, default=repr)
    return await shared().get(f"reward {name}", lambda: _open(spec, path=path, samples=samples, workers=workers))


@asynccontextmanager
async def _open(
    spec: Mapping[str, Any], *, path: str, samples: int | None, workers: int | None
) -> AsyncIterator[OpenReward]:
    async with open_reward(spec, path=path) as reward:
        yield AnnouncedReward(reward, announced_bursts(reward.pools.values(), samples=samples, workers=workers))
