"""A condition variable for one event loop: `asyncio.Condition` without its lock.

It needs none, because all of a pipeline runs on one event loop, and nothing is awaited between a check and the wait
that follows it.
"""

import asyncio


class TaskCondition:
    """Wakes the tasks that wait, so that each checks again what it waits for."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify_all(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        await self._next.wait()
