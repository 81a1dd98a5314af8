"""Announcement of verl's rollouts to pools, by the worker with number 0 for all of them."""

import re
from collections.abc import Iterable

from rewardpool._client.pool import Pool
from rewardpool._client.shared import at_exit
from rewardpool._demand.bursts import Bursts


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
    """Return the number of this process among verl's reward or agent loop workers, by the name of its Ray actor; else
    0.
    """
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
