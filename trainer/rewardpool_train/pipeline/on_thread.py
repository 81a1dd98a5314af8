"""Blocking work of a learner or a rollout engine, awaited."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
A = TypeVarTuple("A")


async def on_thread(thread: Executor, work: Callable[[*A], T], *arguments: *A) -> T:
    """Return what `work` returns on the thread, which is best one that does one thing at a time.

    Cancelled, it still waits for the work to end: a thread cannot be stopped, and nobody should go on while one holds
    the model.
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
        return  # the caller asks again, and raises what it was cancelled with
