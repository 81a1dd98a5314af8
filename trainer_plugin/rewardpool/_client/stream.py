"""Many samples at once: read as there is room, and handed out as they are ready.

    input -> under way, at most so many -> ready -> taken

The input is read in a task of its own, since a rollout takes its time while outcomes are taken.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import aclosing, nullcontext
from typing import Any, Generic, Protocol, TypeVar

from rewardpool._demand.handle import JobDemand

S = TypeVar("S")
T = TypeVar("T")

# Samples of a plain input that are read before the event loop does what else there is, such as sending them.
AT_ONCE = 64


class UnderWay(Protocol):
    def cancel(self) -> set[asyncio.Task[Any]]:
        """Cancel it; returns what runs on for a moment."""


# Begins to score the sample with that index, and later has its outcome delivered.
Begin = Callable[[S, int], UnderWay]


class Stream(Generic[S, T]):
    """The samples of one input. For one use."""

    def __init__(self, begin: Begin[S], *, ahead: int, demand: JobDemand, waited: Callable[[float], None]) -> None:
        """Prepare.

        Args:
            begin: Scores a sample, and later calls `deliver`, never within this call.
            ahead: At most so many are read and not yet taken.
            demand: Receives what the trainer waits for.
            waited: Receives seconds in which there was nothing to take.
        """
        self._begin = begin
        self._ahead = ahead
        self._demand = demand
        self._waited = waited
        self._under_way: dict[int, UnderWay] = {}
        self._ready: deque[tuple[int, T | BaseException]] = deque()
        self._untaken = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def outcomes(self, samples: Iterable[S] | AsyncIterable[S]) -> AsyncGenerator[tuple[int, T], None]:
        """Index and outcome of each sample, as they are ready; raises what `Pool.stream` does."""
        reading = asyncio.create_task(self._read(samples))
        reading.add_done_callback(lambda _: self._news.set())
        try:
            while True:
                while self._ready:
                    index, outcome = self._ready.popleft()
                    self._untaken -= 1
                    self._room.set()
                    if isinstance(outcome, BaseException):
                        raise outcome
                    yield index, outcome
                if reading.done() and (not self._under_way or reading.exception() is not None):
                    break
                await self._wait()
            await reading  # an input that raised does so here
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            running = [task for one in list(self._under_way.values()) for task in one.cancel()]
            await asyncio.gather(*running, return_exceptions=True)

    async def _wait(self) -> None:
        """Wait for the next outcome; while the input is over, or waits to be read, that is all the trainer does."""
        self._news.clear()
        began = time.monotonic()
        with self._demand.waiting():
            await self._news.wait()
        self._waited(time.monotonic() - began)

    async def _read(self, samples: Iterable[S] | AsyncIterable[S]) -> None:
        # An async input goes on by itself while the trainer waits; reading a plain one is all the trainer does.
        feeding = self._demand.feeding() if isinstance(samples, AsyncIterable) else nullcontext()
        async with aclosing(_as_async(samples)) as source:
            with feeding:
                for index in itertools.count():
                    if self._untaken >= self._ahead:
                        await self._for_room()
                    try:
                        sample = await anext(source)
                    except StopAsyncIteration:
                        return
                    self._untaken += 1
                    self._under_way[index] = self._begin(sample, index)

    async def _for_room(self) -> None:
        with self._demand.holding_back():
            while self._untaken >= self._ahead:
                self._room.clear()
                await self._room.wait()

    def deliver(self, index: int, outcome: T | BaseException) -> None:
        self._under_way.pop(index, None)
        self._ready.append((index, outcome))
        self._news.set()


async def _as_async(samples: Iterable[S] | AsyncIterable[S]) -> AsyncGenerator[S, None]:
    if isinstance(samples, AsyncIterable):
        async for sample in samples:
            yield sample
    else:
        for number, sample in enumerate(samples, 1):
            yield sample
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
