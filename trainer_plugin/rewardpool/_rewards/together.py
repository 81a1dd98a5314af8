"""Work on one thread for many who ask on event loops: what is asked while it works is done together after it.

Nobody waits for others: whoever asks while the thread has nothing to do is served at once and alone. A flood costs one
handing over for up to `MOST_AT_ONCE`, in place of one for each.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

# Calls done together; the first ones continue while later ones are done.
MOST_AT_ONCE = 64


class BatchedWork(Generic[A, B]):
    """Batches of one kind of work, on a thread of its own."""

    def __init__(self, work: Callable[[Sequence[A]], Sequence[B | Exception]], *, what: str) -> None:
        """`work` returns the result or the error of each argument, in order; `what` names it in messages."""
        self._work = work
        self._what = what
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=what)
        # Arguments that wait while the thread works.
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Asked[A, B]]] = {}

    async def result(self, what: A) -> B:
        """Return the result. Raises the error that the work has for this, and RuntimeError once it is closed."""
        loop = asyncio.get_running_loop()
        asked: _Asked[A, B] = _Asked(what, loop.create_future())
        if loop in self._waiting:
            self._waiting[loop].append(asked)
        else:
            self._hand_over([asked], loop)
        return await asked.outcome

    async def alone(self, work: Callable[[], T]) -> T:
        """Return the result of other work on the same thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _hand_over(self, asked: "list[_Asked[A, B]]", loop: asyncio.AbstractEventLoop) -> None:
        self._waiting[loop] = asked[MOST_AT_ONCE:]
        asked = asked[:MOST_AT_ONCE]
        try:
            working = loop.run_in_executor(self._thread, self._work, [one.what for one in asked])
        except RuntimeError:
            for one in [*asked, *self._waiting.pop(loop)]:
                one.outcome.set_exception(self._closed())
            return
        working.add_done_callback(partial(self._hand_back, asked, loop))

    def _hand_back(
        self,
        asked: "list[_Asked[A, B]]",
        loop: asyncio.AbstractEventLoop,
        working: asyncio.Future[Sequence[B | Exception]],
    ) -> None:
        if waiting := [one for one in self._waiting.pop(loop) if not one.outcome.done()]:
            self._hand_over(waiting, loop)
        failure = self._closed() if working.cancelled() else working.exception()
        found: Sequence[B | BaseException] = working.result() if failure is None else [failure] * len(asked)
        for one, outcome in zip(asked, found, strict=True):
            if one.outcome.done():
                continue
            if isinstance(outcome, BaseException):
                one.outcome.set_exception(outcome)
            else:
                one.outcome.set_result(outcome)

    def _closed(self) -> RuntimeError:
        return RuntimeError(f"{self._what} is closed")


@dataclass(frozen=True)
class _Asked(Generic[A, B]):
    what: A
    outcome: asyncio.Future[B]


def or_error(work: Callable[[], T]) -> T | Exception:
    try:
        return work()
    except Exception as error:
        return error
