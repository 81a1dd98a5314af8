"""Asking routers, workers and the API server without being held up by one that is silent.

On a pod network a dead address does not refuse, it swallows: a connection to it hangs for seconds. A pass waits a
moment for whoever answered the last time, and not at all for whoever did not; those are polled in the background, and
their answer, when it comes and is another one, wakes the pool.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Generic, TypeVar, cast

import aiohttp

from rewardpool_kube.errors import KubeError, KubeUnreachableError

# A router in the same cluster answers in milliseconds, under a flood of requests in tens of them.
PATIENCE_SECONDS: Final = 0.3
FIRST_PATIENCE_SECONDS: Final = 0.5
NO_ANSWER: Final = (KubeError, KubeUnreachableError, TimeoutError)

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Polling:
    """Settings that the background polls of one pool share."""

    session: aiohttp.ClientSession
    news: Callable[[], None] = lambda: None
    limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))
    clock: Callable[[], float] = monotonic


class Reading(Generic[T]):
    """The latest answer to one question, which is repeated, one request at a time.

    Who gave what is not an answer, by `is_answer`, is not waited for the next time.
    """

    def __init__(self, polling: Polling, *, is_answer: Callable[[T], bool] = lambda _: True) -> None:
        self.last: T | None = None
        """The last answer, or its absence in the asker's own words; None before the first."""
        self.problem: str | None = None
        """Reason for which the last question got no answer; None when it got one."""
        self.asked_at = float("-inf")
        self.is_answered = False
        self._polling = polling
        self._last_asked_at = polling.clock()
        self._silent_since: float | None = None
        self._is_answer = is_answer
        self._task: asyncio.Future[T] | None = None
        self._in_background = False

    @property
    def pending(self) -> bool:
        return self._task is not None

    @property
    def age_seconds(self) -> float:
        """Seconds since the last answer was requested; it may be out of date from then on."""
        return self._polling.clock() - self._last_asked_at

    @property
    def silent_seconds(self) -> float:
        """Since the first question after the last answer was asked; 0 where the last question has one."""
        return 0.0 if self._silent_since is None else self._polling.clock() - self._silent_since

    async def poll(self, question: Callable[[], Awaitable[T]], *, patience: float | None = None) -> bool:
        """Ask, or go on waiting; return whether that is over. What takes longer goes on in the background.

        Its answer becomes `last`, and the words of a `NO_ANSWER` become `problem`.
        """
        if self._task is None:
            self._task = asyncio.ensure_future(question())
            self.asked_at = self._polling.clock()
        if not self._in_background:
            await asyncio.wait({self._task}, timeout=self._patience() if patience is None else patience)
        if not self._task.done():
            if not self._in_background:
                self._in_background = True
                self._task.add_done_callback(self._came_late)
            self._silent_since = self.asked_at if self._silent_since is None else self._silent_since
            return False
        task, self._task, self._in_background = self._task, None, False
        try:
            self.last, self._last_asked_at = task.result(), self.asked_at
            self.is_answered, self.problem = True, None
        except NO_ANSWER as error:
            self.problem = _words(error)
        if self._has_answer():
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self.asked_at
        return True

    def _has_answer(self) -> bool:
        return self.is_answered and self.problem is None and self._is_answer(cast(T, self.last))

    def _patience(self) -> float:
        if not self.is_answered and self.problem is None:
            return FIRST_PATIENCE_SECONDS
        return PATIENCE_SECONDS if self._has_answer() else 0.0

    def close(self) -> None:
        if self._task is not None:
            self._task.remove_done_callback(self._came_late)
            self._task.cancel()
            self._task = None

    def _came_late(self, task: asyncio.Future[T]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, NO_ANSWER):
            is_news = _words(error) != self.problem
        else:
            is_news = error is not None or self.problem is not None or task.result() != self.last
        if is_news:
            self._polling.news()


def _words(error: BaseException) -> str:
    return str(error) or "no answer in time"


def keep_only(readings: "dict[K, Reading[T]]", wanted: Collection[K]) -> None:
    """Close and forget all readings but those."""
    for gone in readings.keys() - set(wanted):
        readings.pop(gone).close()
