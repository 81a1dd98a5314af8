"""Notifies those who wait for something to be different that it may be."""

import asyncio


class Changes:
    """What was waited for may have come true; who waits looks again. For one event loop."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def note(self) -> None:
        """Wake all who wait."""
        self._next.set()
        self._next = asyncio.Event()

    async def next(self) -> None:
        """Return when something has changed from now on."""
        await self._next.wait()
