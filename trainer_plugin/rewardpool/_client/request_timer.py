"""One timer for all that is in flight.

Most requests are answered long before their time is up, so a timer for each would be set and cancelled for nothing. One
check, some thirty times a second while anything is in flight, finds the same a little later.

It also closes the requests that lost a race against one sent beside them, some seconds after that: the router sends to
where it has least in flight, and a silent worker must not look idle to it because nobody waits there any more.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rewardpool._client.connections.exchange import Exchange

# Time for a request that is not yet answered when another one beside it was.
LEFT_OPEN_SECONDS = 5.0
LEAST_LEFT_OPEN = 8
# Checks within the shortest time that is of interest.
CHECKS = 4


class TimedRequest(Protocol):
    def check(self, now: float) -> float:
        """Do what is due, and return when something is due again, by the event loop's clock."""

    def send_again(self, seconds: float) -> None:
        """The pool is back: send a request beside one that waits there since before, after so many seconds."""


class RequestTimer:
    """Checks everything in flight, on the running event loop."""

    def __init__(
        self, *, soonest_seconds: float, most_left_open: int, also: Callable[[float], None] = lambda _: None
    ) -> None:
        """Prepare.

        Args:
            soonest_seconds: Nothing is due earlier than this after it began.
            most_left_open: Of those that lost; beyond it the oldest is closed at once.
            also: Called with the time at every check.
        """
        self._soonest = soonest_seconds
        self._also = also
        self._most_left = max(LEAST_LEFT_OPEN, most_left_open)
        self._in_flight: dict[TimedRequest, float] = {}
        self._left: deque[tuple[float, Exchange]] = deque()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, one: TimedRequest, *, seconds_left: float = math.inf) -> None:
        """Check it from now on, first when it is old enough or its deadline is over."""
        self._in_flight[one] = self._loop.time() + min(self._soonest, seconds_left)
        if self._timer is None:
            self._plan()

    def remove(self, one: TimedRequest) -> None:
        self._in_flight.pop(one, None)

    def for_each(self, call: Callable[[TimedRequest], None]) -> None:
        for one in list(self._in_flight):
            call(one)

    def leave_open(self, lost: Exchange) -> None:
        """Close a request that lost, but not now."""
        self._left.append((self._loop.time() + LEFT_OPEN_SECONDS, lost))
        if len(self._left) > self._most_left:
            self._close_oldest()
        if self._timer is None:
            self._plan()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        while self._left:
            self._close_oldest()

    def _plan(self) -> None:
        self._timer = self._loop.call_later(self._soonest / CHECKS, self._check)

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        for one in [one for one, due in self._in_flight.items() if due <= now]:
            due = one.check(now)
            if one in self._in_flight:  # it may have ended, or ended others
                self._in_flight[one] = due
        self._also(now)
        while self._left and (self._left[0][0] <= now or self._left[0][1].is_over):
            self._close_oldest()
        if self._timer is None and (self._in_flight or self._left):
            self._plan()

    def _close_oldest(self) -> None:
        self._left.popleft()[1].cancel()
