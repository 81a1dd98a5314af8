"""Who waits for something to be true looks again when it may be.

`asyncio.Condition` without its lock: all of a pipeline runs on one event loop, and nothing is awaited between a look
and the wait that follows it.
"""

import asyncio


class Condition:
    """Wakes all who wait, for one event loop."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify_all(self) -> None:
        """Wake all who wait."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Return at the next notification."""
        await self._next.wait()
