"""Asking routers and workers without being held up by one that is silent.

On a pod network a dead address does not refuse, it swallows: a connection to it hangs for seconds. A pass waits a
moment for whoever answered the last time, and not at all for whoever did not; those are polled in the background, and
their answer, when it comes and is another one, wakes the pool.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, Generic, TypeVar

PATIENCE_SECONDS: Final = 0.3
"""A router in the same cluster answers in milliseconds, under a flood of requests in tens of them."""
FIRST_PATIENCE_SECONDS: Final = 0.5
"""For whoever was never asked before: there is no last answer to go on with."""

T = TypeVar("T")


class BackgroundPoll(Generic[T]):
    """One question to one address, asked again and again, one at a time.

    Args:
        news: called when an answer that nobody waited for is there, and is another one than before.
        is_answer: tells an answer from its absence; who gave none is not waited for the next time.
        clock: monotonic seconds.
    """

    def __init__(
        self, news: Callable[[], None], *, is_answer: Callable[[T], bool], clock: Callable[[], float] = monotonic
    ) -> None:
        self.last: T | None = None
        """The last answer, or its absence in the asker's own words; None before the first."""
        self._clock = clock
        self._asked_at = self._last_asked_at = clock()
        self._silent_since: float | None = None
        self._news = news
        self._is_answer = is_answer
        self._task: asyncio.Future[T] | None = None
        self._in_background = False

    @property
    def pending(self) -> bool:
        """Whether an answer is still being waited for."""
        return self._task is not None

    @property
    def age_seconds(self) -> float:
        """Of the last answer: since it was asked for, since what it tells may have changed from that moment on."""
        return self._clock() - self._last_asked_at

    @property
    def silent_seconds(self) -> float:
        """Since the first question after the last answer was asked; 0 where the last question has one."""
        return 0.0 if self._silent_since is None else self._clock() - self._silent_since

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None while there is none, and then the poll goes on in the background."""
        if self._task is None:
            self._task = asyncio.ensure_future(question())
            self._asked_at = self._clock()
        if not self._in_background:
            await asyncio.wait({self._task}, timeout=self._patience())
        if not self._task.done():
            if not self._in_background:
                self._in_background = True
                self._task.add_done_callback(self._came_late)
            self._silent_since = self._asked_at if self._silent_since is None else self._silent_since
            return None
        task, self._task, self._in_background = self._task, None, False
        self.last, self._last_asked_at = task.result(), self._asked_at
        if self._is_answer(self.last):
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self._asked_at
        return self.last

    def _patience(self) -> float:
        if self.last is None:
            return FIRST_PATIENCE_SECONDS
        return PATIENCE_SECONDS if self._is_answer(self.last) else 0.0

    def close(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.remove_done_callback(self._came_late)
            self._task.cancel()
            self._task = None

    def _came_late(self, task: asyncio.Future[T]) -> None:
        if not task.cancelled() and (task.exception() is not None or task.result() != self.last):
            self._news()
