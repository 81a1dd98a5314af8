"""Order of the passes over pools: one queue for all pools, and a bounded number of passes at a time.

`WorkQueue` is data: keys with a due time, each at most once, in the order of their due times, never one that is being
worked on. `Workers` takes from it and runs the passes. A pool that changes all the time waits its turn like every
other, and a hundred events in a burst are a pass or two.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Generic, TypeVar

from rewardpool_kube import api_server_time
from rewardpool_operator.metrics import METRICS

log = logging.getLogger(__name__)

SPACING_SECONDS: Final = 0.3
# More would only be slower each: one processor decides, and an API server that is busy with what a thousand pools asked
# for answers as many calls in a second, however many wait. A pass does not wait long for others either, see
# `polls/reading.py`.
PASSES_AT_A_TIME: Final = 10
PASS_SECONDS: Final = 60.0  # every wait within a pass has a deadline far below it
STUCK_SECONDS: Final = 120.0
"""Seconds for which something may be due while no pass runs."""

DEFECT_SECONDS: Final = 5.0

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Taken(Generic[K]):
    """A key whose turn it is."""

    key: K
    due: float


@dataclass
class WorkQueue(Generic[K]):
    """Keys by due time. Times are monotonic seconds, and always given."""

    spacing: float = SPACING_SECONDS
    _due: dict[K, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, K]] = field(default_factory=list)
    _running: dict[K, float] = field(default_factory=dict)
    _again: dict[K, float] = field(default_factory=dict)
    _earliest: dict[K, float] = field(default_factory=dict)
    _count: int = 0

    def add(self, key: K, due: float) -> None:
        """Add the key for `due`, or earlier if it is queued for earlier; not while it is worked on."""
        if key in self._running:
            self._again[key] = min(due, self._again.get(key, due))
            return
        due = max(due, self._earliest.get(key, due))
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))

    def get(self, now: float) -> Taken[K] | None:
        """The key that has been due the longest, if any; it is worked on until `done`."""
        if self.next_due() > now:
            return None
        due, _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._running[key] = now
        return Taken(key, due)

    def done(self, key: K, now: float, *, again: float | None = None) -> None:
        """The key is no longer worked on; it is due next at `again`, unless it was added for earlier meanwhile."""
        del self._running[key]
        self._earliest.pop(key, None)
        times = [due for due in (again, self._again.pop(key, None)) if due is not None]
        if times:
            self._earliest[key] = now + self.spacing if again is None else min(now + self.spacing, again)
            self.add(key, min(times))

    def next_due(self) -> float:
        """Return when the next key is due; infinity when none is queued."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def length(self, now: float) -> int:
        # A copy: scrapes of metrics ask from a thread of their own.
        return sum(due <= now for due in list(self._due.values()))

    def oldest(self, now: float) -> float:
        """Seconds since the oldest key that is due was due, or the longest running one was begun."""
        begun = min(self._running.values(), default=now)
        return max(0.0, now - min(begun, self.next_due()))


class Workers(Generic[K]):
    """Runs passes, some at a time; a pass returns seconds until the key is to be worked on again, None for never."""

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        *,
        limit: int = PASSES_AT_A_TIME,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.queue: WorkQueue[K] = WorkQueue()
        self._work = work
        self._slots = asyncio.Semaphore(limit)
        self._clock = clock
        self._woken = asyncio.Event()
        self._passes: dict[K, asyncio.Task[None]] = {}

    def add(self, key: K, *, after: float = 0.0) -> None:
        """Add the key for so many seconds from now, or earlier."""
        self.queue.add(key, self._clock() + after)
        self._woken.set()

    async def run(self) -> None:
        """Work, until cancelled; passes that run then are cancelled too."""
        try:
            while True:
                await self._slots.acquire()
                taken = await self._next()
                METRICS.pass_began(self._clock() - taken.due)
                self._passes[taken.key] = asyncio.create_task(self._one(taken.key), name=f"pass {taken.key}")
        finally:
            await self.cancel_passes()

    async def cancel_passes(self, *keys: K) -> None:
        passes = [self._passes[key] for key in keys or tuple(self._passes) if key in self._passes]
        for one in passes:
            one.cancel()
        await asyncio.gather(*passes, return_exceptions=True)

    def oldest(self) -> float:
        return self.queue.oldest(self._clock())

    def length(self) -> int:
        return self.queue.length(self._clock())

    async def _next(self) -> Taken[K]:
        while True:
            self._woken.clear()
            taken = self.queue.get(self._clock())
            if taken is not None:
                return taken
            pause = self.queue.next_due() - self._clock()
            try:
                async with asyncio.timeout(None if pause == float("inf") else max(0.0, pause)):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _one(self, key: K) -> None:
        again: float | None = self.queue.spacing
        began, api_server = self._clock(), api_server_time.begin()
        try:
            async with asyncio.timeout(PASS_SECONDS):
                again = await self._work(key)
        except TimeoutError:
            log.exception("%s: a pass took longer than %s s and was stopped", key, PASS_SECONDS)
        except Exception:
            # A defect with one key must not end the work on it, nor on others.
            log.exception("%s: a pass failed", key)
            again = DEFECT_SECONDS
        finally:
            now = self._clock()
            METRICS.pass_ended(now - began, own_seconds=max(0.0, now - began - api_server.seconds))
            self.queue.done(key, now, again=None if again is None else now + again)
            del self._passes[key]
            self._slots.release()
            self._woken.set()
