"""When a request that takes unusually long gets another one beside it, and the race between them.

A worker whose packets are dropped refuses nothing: the router holds what it has there for half a minute. Every other
request is answered in its usual time, so the client knows soon that something is wrong, and asks again. Scores and
judgements change nothing at the worker, so a request may run twice; the first usable answer counts, and the other
requests are cancelled. If they are silent too there is another one, each after twice the wait before.

    wait: FACTOR times the 95th percentile of the latest answers, at least FLOOR_SECONDS; unknown before MIN_KNOWN
    budget: SHARE of a token for every request, and in hand as many as half the requests in flight

The budget is what keeps a fleet that is slow as a whole from being asked for everything twice. In hand it has what a
pool of two workers needs that loses one. Hedges that were answered first give their tokens back: they took the place
of a request that would have waited for nothing. In a slow fleet they do not win, since who asked first is served first;
but a silent worker draws one request after the other until the router notices, and each needs its hedge. (The
technique: Dean and Barroso, "The Tail at Scale", 2013.)
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from rewardpool.client.retry import Setback

QUANTILE = 0.95
FACTOR = 2.0
FLOOR_SECONDS = 0.25
"""Below this a second request gains nothing that a trainer notices."""
MIN_KNOWN = 20
"""Answers before their times say what is usual."""
SHARE = 0.05
"""Of the requests may get a second one, in the long run."""
MIN_BURST = 8.0
MOST_HEDGES = 5
"""Beside one request. A router may send them to the silent worker too, which soon has the fewest in flight, until it
notices some seconds later; by then the last of these has been sent."""
RECENT = 256
REFRESH = 16
"""Answers between two looks at the quantile; sorting for each one would cost more than it tells."""

T = TypeVar("T")


class Hedging:
    """What is usual, and what is left of the budget. Pure: seconds go in, decisions come out."""

    def __init__(self, *, concurrency: int, floor_seconds: float = FLOOR_SECONDS) -> None:
        """`concurrency` is the requests in flight, half of which may be hedged at once."""
        self._floor = floor_seconds
        self._capacity = max(MIN_BURST, concurrency / 2)
        self._tokens = self._capacity
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._seen = 0
        self._usual: float | None = None

    def answered(self, seconds: float) -> None:
        """A request was answered after so many seconds of its own."""
        self._recent.append(seconds)
        self._seen += 1
        if self._seen >= MIN_KNOWN and (self._usual is None or self._seen % REFRESH == 0):
            ordered = sorted(self._recent)
            self._usual = ordered[math.ceil(QUANTILE * len(ordered)) - 1]

    def sent(self) -> None:
        """A request was sent that is no hedge: a part of another one is earned."""
        self._tokens = min(self._capacity, self._tokens + SHARE)

    def wait(self, elapsed: float) -> float:
        """Seconds until a request that has taken `elapsed` should be looked at again; 0 when it is a straggler.

        Where that is not known, or nothing is left of the budget, it is looked at again after the floor.
        """
        if self._usual is None or self._tokens < 1:
            return self._floor
        return max(0.0, max(self._floor, FACTOR * self._usual) - elapsed)

    def spend(self) -> None:
        """A further request is sent."""
        self._tokens -= 1

    def won(self, hedges: int) -> None:
        """So many were sent beside one request, and one of them was answered first."""
        self._tokens = min(self._capacity, self._tokens + hedges)


class Race(Generic[T]):
    """One request, and further ones beside it while it is a straggler. For one use."""

    def __init__(
        self,
        attempt: Callable[[], Coroutine[Any, Any, T]],
        hedging: Hedging,
        *,
        on_hedge: Callable[[], None],
        at_once: bool = False,
    ) -> None:
        """Prepare.

        Args:
            attempt: Sends the request, once for each call. A Setback is no usable answer; any other error is one.
            hedging: Decides when.
            on_hedge: Is told that a further request is sent.
            at_once: Send a second request with the first one, outside the budget. Of two at a time an idle router
                gives its workers one each, where it gives the same text to the same worker again and again.
        """
        self._attempt = attempt
        self._hedging = hedging
        self._on_hedge = on_hedge
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._hedges: list[asyncio.Task[T]] = []
        self._spent = 0
        self._winner: asyncio.Task[T] | None = None
        self._first: asyncio.Timeout | None = None

    @property
    def hedge_won(self) -> bool:
        """Whether the answer is not that of the first request."""
        return self._winner is not None

    async def run(self) -> T:
        """The first usable answer. Raises the first request's Setback when there is none."""
        self._hedging.sent()
        if self._at_once:
            self._send_hedge()
        self._timer = self._loop.call_later(self._hedging.wait(0.0), self._look)
        first = asyncio.timeout(None)
        try:
            async with first:
                self._first = first
                try:
                    return await self._timed()
                finally:
                    self._first = None
        except TimeoutError:
            # Only a hedge's usable answer makes this timeout expire.
            if self._winner is None or not first.expired():
                raise
            return self._winner.result()
        except Setback:
            self._stop_looking()
            if self._hedges:
                await self._any_usable()
            if self._winner is None:
                raise
            return self._winner.result()
        finally:
            self._stop_looking()
            await self._cancel_hedges()

    async def _timed(self) -> T:
        began = self._loop.time()
        answer = await self._attempt()
        self._hedging.answered(self._loop.time() - began)
        return answer

    async def _hedge(self) -> T:
        self._on_hedge()
        return await self._timed()

    def _look(self) -> None:
        now = self._loop.time()
        seconds = self._hedging.wait((now - self._sent_at) / 2 ** len(self._hedges))
        if seconds == 0:
            self._hedging.spend()
            self._spent += 1
            self._send_hedge()
            self._sent_at = now
            seconds = self._hedging.wait(0.0)
        if len(self._hedges) < MOST_HEDGES:
            self._timer = self._loop.call_later(seconds, self._look)

    def _send_hedge(self) -> None:
        hedge = self._loop.create_task(self._hedge())
        hedge.add_done_callback(self._hedge_ended)
        self._hedges.append(hedge)

    def _hedge_ended(self, hedge: asyncio.Task[T]) -> None:
        """Give the first request up, unless this one has no usable answer either."""
        if self._winner is not None or hedge.cancelled() or isinstance(hedge.exception(), Setback):
            return
        self._winner = hedge
        self._hedging.won(self._spent)
        if self._first is not None:
            self._first.reschedule(self._loop.time())

    async def _any_usable(self) -> None:
        """Wait until a hedge has a usable answer, or none will have one."""
        waiting: set[asyncio.Task[T]] = set(self._hedges)
        while waiting and self._winner is None:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _cancel_hedges(self) -> None:
        running = [hedge for hedge in self._hedges if not hedge.done()]
        for hedge in running:
            hedge.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)
