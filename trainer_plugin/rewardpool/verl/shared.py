"""What is open, once per process and event loop, however many ask for it.

verl makes a reward manager and loads a reward function per worker, each with the same config and without a word about
their end. So what they open is kept here until its event loop is gone. Connections end with the process then; what has
to be said at the end is said when the interpreter exits, where it does: Ray kills the actors of a job that is over.
"""

import asyncio
import atexit
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Shared:
    """What is open on one event loop."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._opened: dict[str, asyncio.Task[Any]] = {}

    async def get(self, name: str, opening: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """What was opened under a name; whoever asks while it is being opened waits for the same one.

        Raises:
            Exception: What opening it raises; the next call tries again.
        """
        task = self._opened.get(name)
        if task is None:
            task = self._opened[name] = asyncio.create_task(self._stack.enter_async_context(opening()))
        try:
            # Whoever gives up does not take it away from the others.
            opened: T = await asyncio.shield(task)
        except Exception:
            if self._opened.get(name) is task:
                del self._opened[name]
            raise
        return opened

    async def close(self) -> None:
        """Close it all."""
        self._opened.clear()
        await self._stack.aclose()


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Shared] = WeakKeyDictionary()
_farewells: list[Callable[[], None]] = []


def shared() -> Shared:
    """That of the running event loop."""
    return _of_loop.setdefault(asyncio.get_running_loop(), Shared())


def at_exit(farewell: Callable[[], None]) -> None:
    """Have something called when the interpreter exits; it must be quick, and callable from any thread."""
    _farewells.append(farewell)


@atexit.register
def _say_farewell() -> None:
    for farewell in _farewells:
        farewell()
