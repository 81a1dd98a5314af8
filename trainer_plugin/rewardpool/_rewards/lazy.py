"""A reward that is opened where and when it is first asked; for frameworks that take a function and carry it about.

A reward function may be made in one process and called in another, and on an event loop that nobody showed us. So only
the config travels: the first call in a process opens the reward on a thread of its own, and all later ones share it.
"""

import asyncio
import atexit
import concurrent.futures
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rewardpool._client.threads.loop_thread import result_of
from rewardpool._client.threads.per_process import PerProcess
from rewardpool._deadline import waited
from rewardpool._demand.handle import JobDemand
from rewardpool._rewards.announced import JobFacts
from rewardpool._rewards.blocking import BlockingReward
from rewardpool._rewards.config import RewardLike, as_mapping, parse_reward, refuse_process, refuse_running
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.rating import Rating

T = TypeVar("T")


class LazyReward(PerProcess[BlockingReward]):
    """Rates batches of episodes, from any thread and any event loop; can be pickled, and survives a fork.

    Args:
        spec: As for `open_reward`.
        tokenizer: As for `open_reward`.
        path: Where `spec` stands in the trainer's config, for messages.
        who: Takes one number for a response, so that the rewards of its steps would be lost; None takes them too.
        announcement: Announces the job to its pools by the samples that come, from the first call; not with `announce`.
        overrides: As for `open_reward`.

    Raises:
        ConfigError: On construction, a field of `spec` is wrong.
    """

    def __init__(
        self,
        spec: RewardLike,
        *,
        tokenizer: Any = None,
        path: str = "reward",
        who: str | None = "this trainer",
        announcement: JobFacts | None = None,
        **overrides: Any,
    ) -> None:
        if overrides:
            spec = {**as_mapping(spec, path=path), **overrides}
        self.spec = parse_reward(spec, path=path)
        refuse_running(self.spec)
        if who is not None:
            refuse_process(self.spec, who=who)
        self.names = tuple(part.name for part in self.spec.parts)
        self._options = {"spec": spec, "tokenizer": tokenizer, "path": path, "announcement": announcement}
        super().__init__()

    def _forget(self) -> None:
        super()._forget()
        self._demands: list[JobDemand] = []
        self._at_exit: Callable[[], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "spec": self.spec, "names": self.names, "_options": self._options}

    def _open(self) -> BlockingReward:
        opened = BlockingReward(**self._options)
        # A job that is over says so, where its process lives to do it. Not a method, which would keep this from being
        # collected.
        self._at_exit = functools.partial(_end_demands, opened, self._process)
        atexit.register(self._at_exit)
        return opened

    @property
    def _called(self) -> str:
        return f"the reward by {', '.join(part.scorer for part in self.spec.parts)}"

    async def rate_batch(self, episodes: Sequence[Episode]) -> list[Rating]:
        """Rate episodes, by their groups where the reward needs groups; ratings come in the order of the episodes.

        Raises:
            SampleError: A part has no score and its policy is `raise`; what is in flight is cancelled.
            PoolError: A pool cannot be used, whatever the policy.
            ConfigError: A tokenizer or function cannot be loaded, or groups are needed and an episode names none.
        """
        return await self._rated(lambda reward: reward.submit_batch(episodes))

    async def rate_next(self, episode: Episode) -> Rating:
        """Rate an episode as `OpenReward.rate_next` does; raises the same."""
        return await self._rated(lambda reward: reward.submit_next(episode))

    async def _rated(self, submit: "Callable[[BlockingReward], concurrent.futures.Future[T]]") -> T:
        """Return the result; opening the reward is part of the time that it may take."""
        began = time.monotonic()
        reward = await asyncio.to_thread(self.opened)
        with waited(time.monotonic() - began):
            submitted = submit(reward)
        return await asyncio.wrap_future(submitted)

    def rate_batch_blocking(self, episodes: Sequence[Episode]) -> list[Rating]:
        """As `rate_batch`, for callers without a loop."""
        return self._rated_blocking(lambda reward: reward.submit_batch(episodes))

    def rate_next_blocking(self, episode: Episode) -> Rating:
        """As `rate_next`, for callers without a loop."""
        return self._rated_blocking(lambda reward: reward.submit_next(episode))

    def _rated_blocking(self, submit: "Callable[[BlockingReward], concurrent.futures.Future[T]]") -> T:
        began = time.monotonic()
        reward = self.opened()
        with waited(time.monotonic() - began):
            submitted = submit(reward)
        return result_of(submitted)

    def announce(self, *, samples: int | None = None, steps: int | None = None) -> Sequence[JobDemand]:
        """The demands of this job, one a pool: announced from the first call on, with what is known at that call."""
        reward = self.opened()
        with self._lock:
            if not self._demands:
                self._demands = [pool.demand(samples=samples, steps=steps) for pool in reward.pools.values()]
            return self._demands

    def close(self, *, for_good: bool = False) -> None:
        with self._lock:
            self._demands = []
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
        super().close(for_good=for_good)


def _end_demands(reward: BlockingReward, process: int) -> None:
    if process == os.getpid():
        for pool in reward.pools.values():
            pool.job_demand.end()
