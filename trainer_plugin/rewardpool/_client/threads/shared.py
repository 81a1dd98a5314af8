"""Open clients, one per process and event loop, shared by all users.

Trainers make reward managers and functions per worker, each with the same config and some without a word about their
end. `lease` is for those who say it: what is shared is closed when the last of them leaves. `get` is for the others: it
is kept until its event loop is gone. Connections end with the process then; what has to be said at the end is said when
the interpreter exits, where it does: Ray kills the actors of a job that is over.
"""

import asyncio
import atexit
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


@dataclass(eq=False)
class _Opened(Generic[T]):
    context: AbstractAsyncContextManager[T]
    task: asyncio.Task[T]
    users: int = 0


class OpenRewards:
    """Pools and rewards that are open on one event loop."""

    def __init__(self) -> None:
        self._opened: dict[Hashable, _Opened[Any]] = {}

    async def get(self, key: Hashable, opening: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Return the shared object of a key, and open it for good at the first call; concurrent calls wait for the same
        one.

        Raises:
            Exception: What opening it raises; the next call tries again.
        """
        return (await self._enter(key, opening)).task.result()

    @asynccontextmanager
    async def lease(self, key: Hashable, opening: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """Yield the shared object of a key; the last of these blocks to end closes it.

        Raises:
            Exception: What opening it raises; the next call tries again.
        """
        opened = await self._enter(key, opening)
        try:
            yield opened.task.result()
        finally:
            await self._leave(key, opened)

    async def close(self) -> None:
        """Close it all, in the reverse order."""
        while self._opened:
            _, opened = self._opened.popitem()
            await _close(opened)

    async def _enter(self, key: Hashable, opening: Callable[[], AbstractAsyncContextManager[T]]) -> _Opened[T]:
        opened = self._opened.get(key)
        if opened is None:
            context = opening()
            opened = self._opened[key] = _Opened(context, asyncio.create_task(_entered(context)))
        opened.users += 1
        try:
            # Whoever gives up does not take it away from the others.
            await asyncio.shield(opened.task)
        except asyncio.CancelledError:
            await self._leave(key, opened)
            raise
        except Exception:
            if self._opened.get(key) is opened:
                del self._opened[key]
            raise
        return opened

    async def _leave(self, key: Hashable, opened: _Opened[Any]) -> None:
        opened.users -= 1
        if opened.users == 0 and self._opened.get(key) is opened:
            del self._opened[key]
            await _close(opened)


async def _entered(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _close(opened: _Opened[Any]) -> None:
    """Close it; one that is still being opened is not opened."""
    opened.task.cancel()
    try:
        await asyncio.gather(opened.task, return_exceptions=True)
    finally:  # also when it is cancelled meanwhile
        if opened.task.done() and not opened.task.cancelled() and opened.task.exception() is None:
            await opened.context.__aexit__(None, None, None)


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, OpenRewards] = WeakKeyDictionary()
_farewells: list[Callable[[], None]] = []


def shared() -> OpenRewards:
    """Return that of the running event loop."""
    return _of_loop.setdefault(asyncio.get_running_loop(), OpenRewards())


def at_exit(farewell: Callable[[], None]) -> None:
    """Register a callback for the interpreter's exit; it must be quick, and callable from any thread."""
    _farewells.append(farewell)


@atexit.register
def _say_farewell() -> None:
    for farewell in _farewells:
        farewell()
