"""An event loop on a thread of its own, for callers that have none; what serves them is open there for as long.

A trainer hands work over as its rollouts end and goes on with its own; the thread does it meanwhile.
"""

import asyncio
import concurrent.futures
import contextvars
import importlib
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, Self, TypeVar

# At the end, what is in flight has this time to be cancelled.
CLOSE_SECONDS = 10.0

R = TypeVar("R")
T = TypeVar("T")


class Work(concurrent.futures.Future[T], ABC):
    """A call with its arguments, which is the future of its outcome too; it may be cancelled until that is there."""

    # One object: a future keeps the callbacks that it has called, and one that referred to a separate work would leave
    # a cycle for every sample. A full garbage collection of thousands pauses the trainer for a third of a second.

    def __init__(self) -> None:
        """Made by the caller, whose context it begins in: the trace that it is in goes on."""
        super().__init__()
        self.context = contextvars.copy_context()

    @abstractmethod
    def begin(self) -> None:
        """Begin it, on the loop that runs here and in the context of the caller."""

    @abstractmethod
    def give_up(self) -> None:
        """Cancel it, whether it was begun or not; if it was, `settle` is called. On the loop."""

    def settle(self, outcome: Callable[[], T]) -> None:
        """Hand on what it came to, which the function returns or raises; once, on the loop."""
        try:
            result = outcome()
        except asyncio.CancelledError:
            self.cancel()
            self.set_running_or_notify_cancel()
        except BaseException as error:
            self.fail(error)
        else:
            if self.set_running_or_notify_cancel():
                self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Hand on what it failed with, in place of `settle`."""
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


class _Coroutine(Work[T]):
    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._ended)

    def give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._coroutine.close()
            self.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._task = None
        self.settle(task.result)


class LoopThread(Generic[R]):
    """Enters an async context manager on a new thread, and leaves it in `close`; any thread may call it.

    Usable as a context manager. Made after a fork, not before: threads do not survive one.

    Raises:
        Exception: On construction, whatever entering raises.
    """

    def __init__(self, opening: AbstractAsyncContextManager[R], *, what: str) -> None:
        self._opening = opening
        self._what = what
        # No lock: a signal handler may close what its own thread just uses, and a deque needs none.
        self._is_closing = False
        self._handed_over: deque[Work[Any]] = deque()
        self._begun: set[Work[Any]] = set()
        # Whether the loop will check `_begun`.
        self._is_woken = False
        self._started: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, R]]
        self._started = concurrent.futures.Future()
        # A daemon, so that a trainer that dies without closing still exits.
        self._thread = threading.Thread(target=self._run, name="rewardpool", daemon=True)
        self._thread.start()
        self._loop, self._stop, self.opened = self._started.result()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin some work on the loop, in a task; cancelling the future gives it up. Raises what `hand_over` does."""
        return self.hand_over(_Coroutine(work))

    def hand_over(self, work: Work[T]) -> concurrent.futures.Future[T]:
        """Begin some work on the loop; cancelling the future gives it up.

        Raises:
            RuntimeError: It is closed, or being closed.
        """
        self._handed_over.append(work)
        # Looked at only now: the thread gives up what it finds after it has set this. No thread survives a fork.
        if self._is_closing or not self._thread.is_alive():
            with suppress(ValueError):  # it found this
                self._handed_over.remove(work)
                work.give_up()
                raise RuntimeError(f"{self._what} is closed")
        elif not self._is_woken:
            # One waking for all that arrives before the loop runs, not one for each as by `run_coroutine_threadsafe`:
            # every waking is a system call without the interpreter's lock, and this thread may wait 5 ms to get the
            # lock back from a busy loop. A rollout that ends with thousands of samples stood still for seconds.
            self._is_woken = True
            with suppress(RuntimeError):  # it ended in this moment, and gives up what it finds
                self._loop.call_soon_threadsafe(self._take_over)
        return work

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work on the loop, and wait for it; when this thread is interrupted meanwhile, it is given up."""
        return result_of(self.start(work))

    def close(self) -> None:
        """Cancel what is in flight, leave the context manager and end the thread; may be called again.

        Raises:
            TimeoutError: The thread did not end within 10 s.
        """
        self.stop()
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"the thread of {self._what} did not end within {CLOSE_SECONDS:g} s")

    def stop(self) -> None:
        """Begin to close, without waiting for the end: what the garbage collector may do, in any thread."""
        self._is_closing = True
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stop.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_over(self) -> None:
        self._is_woken = False  # before it looks, so that what comes later wakes it again
        while self._handed_over:
            work = self._handed_over.popleft()
            if work.cancelled():
                work.give_up()
                continue
            self._begun.add(work)
            work.add_done_callback(self._done)  # type: ignore[arg-type]  # the future is the work
            try:
                work.context.run(work.begin)
            except Exception as error:
                work.fail(error)

    def _done(self, work: Work[Any]) -> None:
        """Any thread that cancels the future may call it."""
        self._begun.discard(work)
        if work.cancelled():
            with suppress(RuntimeError):  # the loop has ended, and all with it
                self._loop.call_soon_threadsafe(work.give_up)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_fastest_loop) as runner:
                runner.run(self._serve())
        finally:
            self._is_closing = True
            while self._handed_over:
                self._handed_over.popleft().give_up()

    async def _serve(self) -> None:
        stop = asyncio.Event()
        try:
            async with self._opening as opened:
                self._started.set_result((asyncio.get_running_loop(), stop, opened))
                await stop.wait()
                for work in list(self._begun):
                    work.give_up()
                await _cancel_all_others()
        except BaseException as error:  # whatever it is, the constructor waits for it
            if self._started.done():
                raise
            self._started.set_exception(error)


def _fastest_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def result_of(future: concurrent.futures.Future[T]) -> T:
    """Wait for a future; when this thread is interrupted meanwhile, its work is given up."""
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C in this thread: nobody waits for the answer any more
        raise


async def _cancel_all_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
