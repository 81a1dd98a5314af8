"""A reward whose demand is announced, open once per process and event loop: what both ways into verl rate by."""

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._client.threads.shared import at_exit, shared
from rewardpool._demand.bursts import Bursts
from rewardpool._rewards import OpenReward, open_reward
from rewardpool._rewards.announced import AnnouncedReward, requests_of_rollout
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

    @asynccontextmanager
    async def opening() -> AsyncIterator[OpenReward]:
        claims = RayClaims() if split else None
        async with open_reward(spec, path=path, claims=claims) as reward:
            if claims is not None and any(pool.one_revision for pool in reward.pools.values()):
                await claims.start()
            requests = requests_of_rollout(reward, samples=samples, group=group)
            asked = [(pool, requests[name]) for name, pool in reward.pools.items()]
            yield AnnouncedReward(reward, announced_bursts(asked, workers=workers))

    return await shared().get(f"reward {json.dumps(spec, sort_keys=True, default=repr)}", opening)


def announced_bursts(pools: Iterable[tuple[Pool, int | None]], *, workers: int | None) -> Bursts:
    """Bursts that are announced to these pools from now on, by the worker whose part that is.

    Args:
        pools: Open ones, whose demand is not announced yet; with the requests of one rollout, over all reward workers.
        workers: How many reward workers share them; None where that is not known.

    Raises:
        ConfigError: $REWARDPOOL_JOB or $REWARDPOOL_ANNOUNCE is wrong.
    """
    # Where it is not known how many workers there are, this one's samples may not be all.
    demands = [pool.demand(samples=requests, rank=worker_number(), ranks=workers or 2) for pool, requests in pools]
    for demand in demands:
        at_exit(demand.end)
    return Bursts(demands)


def worker_number() -> int:
    """Return this process's number among verl's reward or agent loop workers, by its Ray actor's name; else 0."""
    try:
        import ray
    except ImportError:
        return 0
    if not ray.is_initialized():
        return 0
    return number_in(ray.get_runtime_context().get_actor_name() or "")


def number_in(actor_name: str) -> int:
    """The worker's number in the name that verl gave its actor; 0 where there is none."""
    # `reward_loop_worker_3`, and `agent_loop_worker_3_5d1e07c2` with random hexadecimal digits.
    found = re.search(r"_worker_(\d+)(_|$)", actor_name)
    return int(found[1]) if found else 0
