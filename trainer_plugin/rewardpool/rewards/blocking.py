"""The same reward for code that is not async: an event loop on a thread of its own."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rewardpool.client import Pool
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.open import open_reward
from rewardpool.rewards.rating import Rating
from rewardpool.rewards.reward import Reward

CLOSE_SECONDS = 10.0
"""For what is in flight to be cancelled when the reward is closed."""

T = TypeVar("T")


class BlockingReward:
    """A `Reward` behind plain function calls; any thread may call it. Usable as a context manager.

    Made after a fork, not before: threads do not survive one.

    Raises:
        RewardPoolError: On construction, what `open_reward` raises.
    """

    def __init__(self, spec: str | Mapping[str, Any], *, tokenizer: Any = None, **overrides: Any) -> None:
        self._opening = open_reward(spec, tokenizer=tokenizer, **overrides)
        self._started: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, Reward]]
        self._started = concurrent.futures.Future()
        # A daemon, so that a trainer that dies without closing still exits.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="rewardpool", daemon=True)
        self._thread.start()
        self._loop, self._stop, self._reward = self._started.result()

    async def _serve(self) -> None:
        stop = asyncio.Event()
        try:
            async with self._opening as reward:
                self._started.set_result((asyncio.get_running_loop(), stop, reward))
                await stop.wait()
                others = asyncio.all_tasks() - {asyncio.current_task()}
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    @property
    def names(self) -> tuple[str, ...]:
        """As `Reward.names`."""
        return self._reward.names

    @property
    def needs_group(self) -> bool:
        """As `Reward.needs_group`."""
        return self._reward.needs_group

    @property
    def pools(self) -> Mapping[str, Pool]:
        """As `Reward.pools`; of these, `demand`, `report` and `endpoint` may be used from any thread."""
        return self._reward.pools

    def submit(self, episode: Episode) -> concurrent.futures.Future[Rating]:
        """Start rating an episode; the future has what `Reward.rate` returns or raises."""
        return self._call(self._reward.rate(episode))

    def submit_group(self, episodes: Sequence[Episode]) -> concurrent.futures.Future[list[Rating]]:
        """Start rating a group; the future has what `Reward.rate_group` returns or raises."""
        return self._call(self._reward.rate_group(episodes))

    def rate(self, episode: Episode) -> Rating:
        """Rate one episode, as `Reward.rate` does."""
        return _result(self.submit(episode))

    def rate_group(self, episodes: Sequence[Episode]) -> list[Rating]:
        """Rate a group, as `Reward.rate_group` does."""
        return _result(self.submit_group(episodes))

    def close(self) -> None:
        """Give up what is in flight and close the pools; may be called again.

        Raises:
            TimeoutError: The thread did not end within 10 s.
        """
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"the reward's thread did not end within {CLOSE_SECONDS:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("the reward is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def _result(future: concurrent.futures.Future[T]) -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C in this thread: nobody waits for the answer any more
        raise
