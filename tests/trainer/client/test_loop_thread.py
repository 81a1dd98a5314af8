"""What is open on a thread of its own: every call ends, whatever happens there."""

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rewardpool._client.threads.loop_thread import LoopThread, result_of

SECONDS = 10.0
"""For what another thread does at once."""


@asynccontextmanager
async def opening(*, closing: threading.Event, may_close: threading.Event) -> AsyncIterator[str]:
    """Closes when it may."""
    yield "open"
    closing.set()
    await asyncio.to_thread(may_close.wait, SECONDS)


async def answer() -> int:
    return 42


def test_work_is_done_on_the_thread_until_it_is_closed() -> None:
    thread = LoopThread(opening(closing=threading.Event(), may_close=_set()), what="the thing")
    assert (thread.opened, result_of(thread.start(answer()))) == ("open", 42)
    thread.close()
    thread.close()
    with pytest.raises(RuntimeError, match="the thing is closed"):
        thread.start(answer())


@pytest.fixture
def thread() -> Iterator[LoopThread[str]]:
    opened = LoopThread(opening(closing=threading.Event(), may_close=_set()), what="the thing")
    yield opened
    opened.close()


def test_work_that_comes_while_the_loop_is_busy_wakes_it_once(
    thread: LoopThread[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, go_on = threading.Event(), threading.Event()

    async def keep_busy() -> None:
        busy.set()
        go_on.wait(SECONDS)

    first = thread.start(keep_busy())
    assert busy.wait(SECONDS)
    woken: list[object] = []
    wake = thread._loop.call_soon_threadsafe
    monkeypatch.setattr(
        thread._loop, "call_soon_threadsafe", lambda call, *rest, **more: (woken.append(call), wake(call, *rest))[1]
    )
    answers = [thread.start(answer()) for _ in range(100)]
    go_on.set()
    first.result(SECONDS)
    assert [future.result(SECONDS) for future in answers] == [42] * 100
    assert len(woken) == 1


def test_work_runs_in_the_context_of_who_started_it(thread: LoopThread[str]) -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace")

    async def seen() -> str:
        return trace.get()

    futures = [contextvars.copy_context().run(_start_within, thread, trace, name, seen) for name in ("a", "b")]
    assert [future.result(SECONDS) for future in futures] == ["a", "b"]


def test_a_future_that_is_cancelled_gives_its_work_up(thread: LoopThread[str]) -> None:
    begun, given_up = threading.Event(), threading.Event()

    async def for_ever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    future = thread.start(for_ever())
    assert begun.wait(SECONDS)
    assert future.cancel()
    assert given_up.wait(SECONDS)


def test_work_that_is_given_up_before_the_loop_gets_to_it_is_never_begun(thread: LoopThread[str]) -> None:
    busy, go_on = threading.Event(), threading.Event()
    begun: list[str] = []

    async def keep_busy() -> None:
        busy.set()
        go_on.wait(SECONDS)

    async def begin(name: str) -> None:
        begun.append(name)

    first = thread.start(keep_busy())
    assert busy.wait(SECONDS)
    given_up, other = thread.start(begin("given up")), thread.start(begin("other"))
    assert given_up.cancel()
    go_on.set()
    first.result(SECONDS)
    other.result(SECONDS)
    assert begun == ["other"]


def test_work_that_comes_as_the_thread_is_closed_ends_all_the_same() -> None:
    for _ in range(20):
        thread = LoopThread(opening(closing=threading.Event(), may_close=_set()), what="the thing")
        futures: list[Future[int]] = []
        refused = threading.Event()

        def keep_coming(
            thread: LoopThread[str] = thread, futures: list[Future[int]] = futures, refused: threading.Event = refused
        ) -> None:
            try:
                while True:
                    futures.append(thread.start(answer()))
            except RuntimeError:
                refused.set()

        callers = [threading.Thread(target=keep_coming) for _ in range(2)]
        for caller in callers:
            caller.start()
        thread.close()
        for caller in callers:
            caller.join(SECONDS)
        assert refused.is_set()
        done, left = concurrent.futures.wait(futures, timeout=SECONDS)
        assert (len(done), left) == (len(futures), set())


def test_an_error_of_the_work_is_in_its_future(thread: LoopThread[str]) -> None:
    async def failing() -> None:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        thread.start(failing()).result(SECONDS)


def test_work_that_comes_while_it_is_being_closed_is_refused() -> None:
    closing, may_close = threading.Event(), threading.Event()
    thread = LoopThread(opening(closing=closing, may_close=may_close), what="the thing")
    closer = threading.Thread(target=thread.close)
    closer.start()
    assert closing.wait(SECONDS)
    with pytest.raises(RuntimeError, match="the thing is closed"):
        thread.start(answer())
    may_close.set()
    closer.join(SECONDS)
    assert not closer.is_alive()


@pytest.mark.parametrize("error", [ConnectionError, asyncio.CancelledError, SystemExit])
def test_whatever_the_opening_raises_comes_out_of_the_constructor(error: type[BaseException]) -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        raise error
        yield

    with pytest.raises(error):
        LoopThread(failing(), what="the thing")


def _start_within(
    thread: LoopThread[str],
    variable: contextvars.ContextVar[str],
    value: str,
    work: Callable[[], Coroutine[Any, Any, str]],
) -> "Future[str]":
    variable.set(value)
    return thread.start(work())


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
