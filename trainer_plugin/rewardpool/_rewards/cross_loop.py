"""Pools on one event loop, held awake from another one: a trainer's reward is on a thread of its own."""

import asyncio
import concurrent.futures
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

# Begins some work on the pools' loop; `LoopThread.start`.
Start = Callable[[Coroutine[Any, Any, None]], concurrent.futures.Future[None]]


@asynccontextmanager
async def awake_elsewhere(
    start: Start, contexts: Sequence[AbstractAsyncContextManager[None]]
) -> AsyncGenerator[None, None]:
    """Within this block all contexts, which belong to the other loop, are entered; they are entered side by side.

    A block that fails or is cancelled leaves them too, and does not wait for that. `start` begins work on the other
    loop. Raises the first that entering or leaving raised.
    """
    release = asyncio.Event()  # of the other loop, which alone waits for it
    entered: list[concurrent.futures.Future[None]] = [concurrent.futures.Future() for _ in contexts]
    held = [start(_hold(context, future, release)) for context, future in zip(contexts, entered, strict=True)]
    try:
        await asyncio.gather(*map(asyncio.wrap_future, entered))
        yield
        start(_set(release))
        await asyncio.gather(*map(asyncio.wrap_future, held))
    except BaseException:
        for hold in held:
            hold.cancel()
        raise


async def _hold(
    context: AbstractAsyncContextManager[None], entered: concurrent.futures.Future[None], release: asyncio.Event
) -> None:
    """Enter and leave, in one task: cancelled at any moment, it leaves what it has entered."""
    try:
        async with context:
            if entered.set_running_or_notify_cancel():
                entered.set_result(None)
            await release.wait()
    except Exception as error:
        if entered.done():
            raise
        entered.set_exception(error)


async def _set(event: asyncio.Event) -> None:
    event.set()
