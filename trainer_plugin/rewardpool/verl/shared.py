"""One open reward per process and event loop, however many ask for it.

verl makes a reward manager and loads a reward function per worker, each with the same config and without a word about
their end. So what is open is kept here until its event loop is gone; connections end with the process then, and a
demand that was announced is taken back when the interpreter exits.
"""

import asyncio
import atexit
import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any
from weakref import WeakKeyDictionary

from rewardpool.rewards import Reward, open_reward

log = logging.getLogger(__name__)


class SharedRewards:
    """The rewards of one event loop."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._opened: dict[str, asyncio.Task[Reward]] = {}

    async def reward(self, spec: Mapping[str, Any], *, path: str) -> Reward:
        """The open reward of a spec; whoever asks while it is opened waits for the same one.

        Raises:
            RewardPoolError: What `open_reward` raises; the next call tries again.
        """
        name = json.dumps(spec, sort_keys=True, default=repr)
        opening = self._opened.get(name)
        if opening is None:
            opening = asyncio.create_task(self._open(spec, path=path))
            self._opened[name] = opening
        try:
            # Whoever gives up does not take it away from the others.
            return await asyncio.shield(opening)
        except Exception:
            if self._opened.get(name) is opening:
                del self._opened[name]
            raise

    async def close(self) -> None:
        """Close them all."""
        self._opened.clear()
        await self._stack.aclose()

    def end_demands(self) -> None:
        """Take back what is announced; from any thread."""
        for opening in self._opened.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                for pool in opening.result().pools.values():
                    pool.job_demand.end()

    async def _open(self, spec: Mapping[str, Any], *, path: str) -> Reward:
        return await self._stack.enter_async_context(open_reward(spec, path=path))


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedRewards] = WeakKeyDictionary()


def shared_rewards() -> SharedRewards:
    """Those of the running event loop."""
    return _of_loop.setdefault(asyncio.get_running_loop(), SharedRewards())


@atexit.register
def _end_demands() -> None:
    for rewards in list(_of_loop.values()):
        rewards.end_demands()
