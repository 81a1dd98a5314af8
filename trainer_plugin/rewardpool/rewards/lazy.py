"""A reward that is opened where and when it is first asked; for frameworks that take a function and carry it about.

A reward function may be made in one process and called in another, and on an event loop that nobody showed us. So only
the config travels: the first call in a process opens the reward on a thread of its own, and all later ones share it.
"""

import asyncio
import atexit
import concurrent.futures
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rewardpool.client.loop_thread import result_of
from rewardpool.deadline import waited
from rewardpool.demand.handle import JobDemand
from rewardpool.rewards.announced import Announcement
from rewardpool.rewards.blocking import BlockingReward
from rewardpool.rewards.config import RewardLike, as_mapping, parse_reward, refuse_process, refuse_running
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.rating import Rating

T = TypeVar("T")


class LazyReward:
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
        announcement: Announcement | None = None,
        **overrides: Any,
    ) -> None:
        if overrides:
            spec = {**as_mapping(spec, path=path), **overrides}
        parsed = parse_reward(spec, path=path)
        refuse_running(parsed)
        if who is not None:
            refuse_process(parsed, who=who)
        self.names = tuple(part.name for part in parsed.parts)
        """Names of the parts, as `OpenReward.names`."""
        self.may_leave_unscored = parsed.may_leave_unscored
        """Whether the failure policy of a part leaves responses without a total."""
        self.scorers = tuple(part.scorer for part in parsed.parts)
        """What scores for each part, such as `pool rl/skywork`."""
        self.is_closed = False
        """For good."""
        self._options: dict[str, Any] = {
            "spec": spec,
            "tokenizer": tokenizer,
            "path": path,
            "announcement": announcement,
        }
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._opening: concurrent.futures.Future[BlockingReward] | None = None
        self._demands: list[JobDemand] = []
        self._process = os.getpid()
        self._at_exit: Callable[[], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {
            "names": self.names,
            "may_leave_unscored": self.may_leave_unscored,
            "scorers": self.scorers,
            "is_closed": self.is_closed,
            "_options": self._options,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def opened(self) -> BlockingReward:
        """Return the reward of this process; opens it if that was not done yet.

        Callers that arrive while it is opened wait for that, and share its failure: the next call tries again.

        Raises:
            RuntimeError: It was closed for good.
            RewardPoolError: What `open_reward` raises.
        """
        if self._process != os.getpid():  # a fork: its threads and connections are the parent's
            self._forget()
        with self._lock:
            if self.is_closed:
                raise RuntimeError(f"the reward by {', '.join(self.scorers)} is closed; make another one")
            opening, is_first = self._opening, self._opening is None
            if opening is None:
                opening = self._opening = concurrent.futures.Future()
        if is_first:
            self._open(opening)
        return opening.result()

    def _open(self, opening: "concurrent.futures.Future[BlockingReward]") -> None:
        try:
            opened = BlockingReward(**self._options)
        except BaseException as error:
            with self._lock:
                if self._opening is opening:
                    self._opening = None
            opening.set_exception(error)
            return
        # A job that is over says so, where its process lives to do it. Not a method, which would keep this from being
        # collected.
        self._at_exit = functools.partial(_end_demands, opened, self._process)
        atexit.register(self._at_exit)
        opening.set_result(opened)

    @property
    def reward_if_open(self) -> BlockingReward | None:
        """The reward, where this process has opened it."""
        opening = self._opening
        is_here = opening is not None and self._process == os.getpid() and opening.done()
        return opening.result() if opening is not None and is_here and opening.exception() is None else None

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
        """What is submitted; opening the reward is part of the time that it may take."""
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
        """Close this process's connections; the next call opens them again, or with `for_good` raises.

        May be called again.
        """
        with self._lock:
            self.is_closed = self.is_closed or for_good
            opening, self._opening = self._opening, None
            self._demands = []
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
        if opening is not None:
            concurrent.futures.wait([opening])
            if opening.exception() is None:
                opening.result().close()


def _end_demands(reward: BlockingReward, process: int) -> None:
    if process == os.getpid():
        for pool in reward.pools.values():
            pool.job_demand.end()
