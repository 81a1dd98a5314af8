"""What is open on a thread of its own: every call ends, whatever happens there."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rewardpool.client.loop_thread import LoopThread, result_of

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


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
