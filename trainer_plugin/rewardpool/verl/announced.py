"""A reward whose demand is announced, open once per process and event loop: what both ways into verl rate by."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rewardpool._client.shared import shared
from rewardpool._rewards import OpenReward, open_reward
from rewardpool._rewards.announced import AnnouncedReward, requests_of_rollout
from rewardpool.verl.bursts import announced_bursts
from rewardpool.verl.ray_claims import RayClaims


async def shared_reward(
    spec: Mapping[str, Any],
    *,
    path: str,
    samples: int | None = None,
    group: int | None = None,
    workers: int | None = None,
    split: bool = False,
) -> OpenReward:
    """The reward of a spec on this event loop.

    Args:
        path: Where the spec is in the config, for messages.
        samples: Of one rollout, over all reward workers.
        group: Of these, the responses to one prompt.
        workers: How many reward workers share them; None where that is not known.
        split: Whether other processes of the job rate members of the same groups, one by one.

    Raises:
        RewardPoolError: What `open_reward` raises.
        PoolError: What `RayClaims.start` raises.
    """
    name = json.dumps(spec, sort_keys=True, default=repr)
    return await shared().get(
        f"reward {name}", lambda: _open(spec, path=path, samples=samples, group=group, workers=workers, split=split)
    )


@asynccontextmanager
async def _open(
    spec: Mapping[str, Any], *, path: str, samples: int | None, group: int | None, workers: int | None, split: bool
) -> AsyncIterator[OpenReward]:
    claims = RayClaims() if split else None
    async with open_reward(spec, path=path, claims=claims) as reward:
        if claims is not None and any(pool.one_revision for pool in reward.pools.values()):
            await claims.start()
        requests = requests_of_rollout(reward, samples=samples, group=group)
        asked = [(pool, requests[name]) for name, pool in reward.pools.items()]
        yield AnnouncedReward(reward, announced_bursts(asked, workers=workers))
