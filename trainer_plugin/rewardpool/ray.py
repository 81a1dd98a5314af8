"""Ray: actors that rate episodes, spread over the nodes of a cluster.

workers = rewardpool.ray.spread("rl/skywork")
ratings = workers.rate_batch(episodes)                # or: await workers.rate_batch_async(episodes)

Tokenising and the calls themselves cost CPU time that a driver or a rollout worker may not have. The actors have no
names, so that any number of jobs and parts of a job have their own; what is handed about is `RewardWorkers`, which can
be pickled. Ray restarts an actor that dies and makes its calls again, as scoring a sample twice does no harm; the
deadlines of such a call begin anew. What killed the actor may have hit the pool too, which samples wait for.
"""

import asyncio
import itertools
import os
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rewardpool._client.report import Report
from rewardpool._rewards.announced import JobFacts
from rewardpool._rewards.config import RewardLike, parse_reward, refuse_running
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.groups import in_order, siblings
from rewardpool._rewards.lazy import LazyReward
from rewardpool._rewards.rating import Rating

# Restarts of one actor before Ray gives it up.
RESTARTS = 100
# Retries of one call when its actor dies.
TASK_RETRIES = 5


class RewardWorker:
    """The actor: a reward, opened in a process of its own.

    What goes wrong with a sample comes back as this package's own error, which Ray wraps so that it still is one.
    """

    def __init__(self, spec: RewardLike, announcement: JobFacts | None = None) -> None:
        self._lazy = LazyReward(spec, announcement=announcement)

    async def opened(self) -> int:
        """Open the reward, and return the process id. Raises what `open_reward` raises."""
        await asyncio.to_thread(self._lazy.opened)
        return os.getpid()

    async def rate_batch(self, episodes: Sequence[Episode]) -> list[Rating]:
        """As `LazyReward.rate_batch`."""
        return await self._lazy.rate_batch(episodes)

    async def reports(self) -> dict[str, Report]:
        """Return this actor's reports so far, by pool."""
        reward = await asyncio.to_thread(self._lazy.opened)
        return {name: pool.report() for name, pool in reward.pools.items()}


class RewardWorkers:
    """Handles of the actors; can be pickled and used anywhere in the Ray cluster. The actors live as long as a handle.

    Args:
        actors: By the id of their node.
    """

    def __init__(self, actors: Sequence[tuple[str, Any]]) -> None:
        self._actors = list(actors)
        self._turn = itertools.count()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._actors,)

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def nodes(self) -> list[str]:
        """The node of each actor, by its id, as it was started."""
        return [node for node, _ in self._actors]

    def submit(self, episodes: Sequence[Episode]) -> Any:
        """Start rating episodes at one actor, the next in turn; an object reference of a list of ratings."""
        _, actor = self._actors[next(self._turn) % len(self._actors)]
        return actor.rate_batch.remote(list(episodes))

    def rate_batch(self, episodes: Sequence[Episode]) -> list[Rating]:
        """Rate episodes at all actors; those of a group at the same one. Ratings come in the order of the episodes.

        Raises:
            SampleError: A part has no score and its policy is `raise`.
            PoolError: A pool cannot be used.
            ConfigError: What `open_reward` raises of its config.
            ray.exceptions.RayActorError: An actor died too often.
        """
        shares = shares_of(episodes, ways=len(self))
        rated = ray.get([self.submit([episodes[index] for index in share]) for share in shares])
        return in_order(shares, rated)

    async def rate_batch_async(self, episodes: Sequence[Episode]) -> list[Rating]:
        """As `rate_batch`, for callers with an event loop."""
        shares = shares_of(episodes, ways=len(self))
        rated = await asyncio.gather(*(self.submit([episodes[index] for index in share]) for share in shares))
        return in_order(shares, rated)

    def opened(self) -> list[int]:
        """Open the reward in every actor, and return their process ids. Raises what `open_reward` raises."""
        return list(ray.get([actor.opened.remote() for _, actor in self._actors]))

    def reports(self) -> list[dict[str, Report]]:
        """Return all reports so far, by actor and pool."""
        return list(ray.get([actor.reports.remote() for _, actor in self._actors]))

    def close(self) -> None:
        """End the actors, also where others have handles of them."""
        for _, actor in self._actors:
            ray.kill(actor)


def spread(spec: RewardLike, *, per_node: int = 1, num_cpus: float = 1.0, samples: int | None = None) -> RewardWorkers:
    """Start actors on every node that is alive now and has the CPUs, and open the reward in them.

    Args:
        spec: As for `open_reward`; functions in it must be importable, or picklable, on every node.
        per_node: Actors on each node.
        num_cpus: CPUs that Ray sets aside for each.
        samples: Of one rollout, over all actors, for the demand that the first actor announces to the pools.

    Raises:
        ConfigError: A field of `spec` is wrong.
        PoolError: A pool cannot be used.
        ValueError: `per_node` is not positive.
        RuntimeError: No node has the CPUs.
    """
    if per_node < 1:
        raise ValueError("per_node must be positive")
    refuse_running(parse_reward(spec))
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= num_cpus]
    if not nodes:
        raise RuntimeError(f"no node of the Ray cluster has {num_cpus:g} CPUs")
    actor = ray.remote(num_cpus=num_cpus, max_restarts=RESTARTS, max_task_retries=TASK_RETRIES)(RewardWorker)
    actors = []
    places = [node["NodeID"] for node in nodes for _ in range(per_node)]
    for rank, node in enumerate(places):
        # Soft: an actor whose node is gone is restarted elsewhere.
        place = NodeAffinitySchedulingStrategy(node, soft=True)
        announcement = JobFacts(samples=samples, rank=rank, ranks=len(places))
        actors.append((node, actor.options(scheduling_strategy=place).remote(spec, announcement)))
    workers = RewardWorkers(actors)
    workers.opened()
    return workers


def shares_of(episodes: Sequence[Episode], *, ways: int) -> list[list[int]]:
    """Indices of the episodes in at most so many shares of about the same size, with groups kept together."""
    shares: list[list[int]] = [[] for _ in range(ways)]
    for group in siblings(episodes):
        min(shares, key=len).extend(group)
    return [share for share in shares if share]
