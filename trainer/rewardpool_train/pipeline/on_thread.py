"""Run blocking work of a learner or a rollout engine on a thread, and await it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
A = TypeVarTuple("A")


async def on_thread(thread: Executor, work: Callable[[*A], T], *arguments: *A) -> T:
    """Return what `work` returns on the thread. Use an executor of one thread for work on the model.

    If cancelled, it still waits for the work to end: a thread cannot be stopped, and no other work may use the model
    meanwhile.
    """
    future = asyncio.get_running_loop().run_in_executor(thread, work, *arguments)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            await _until_done(future)
        raise


async def _until_done(future: "asyncio.Future[T]") -> None:
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        return  # the caller checks again, and raises the cancellation
