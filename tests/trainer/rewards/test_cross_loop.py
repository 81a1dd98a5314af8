"""Pools that live on the event loop of another thread: FakePool notes what is done to it there."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest

from rewardpool._client.threads.loop_thread import LoopThread
from rewardpool._rewards.cross_loop import awake_elsewhere
from rewardpool.errors import PoolNotReadyError

WITHIN_SECONDS = 10


class FakePool:
    """Wakes at once, or never."""

    def __init__(self, *, wakes: bool = True) -> None:
        self.told: list[str] = []
        self.asleep = threading.Event()
        self._wakes = wakes

    @asynccontextmanager
    async def awake(self) -> AsyncGenerator[None, None]:
        self.told.append(threading.current_thread().name)
        try:
            if not self._wakes:
                await asyncio.Event().wait()
            yield
        finally:
            self.asleep.set()


@asynccontextmanager
async def nothing() -> AsyncGenerator[None, None]:
    yield


@pytest.fixture
def thread() -> Iterator[LoopThread[None]]:
    thread = LoopThread(nothing(), what="the test")
    yield thread
    thread.close()


async def test_all_pools_are_awake_within_the_block_and_asleep_after_it(thread: LoopThread[None]) -> None:
    pools = [FakePool(), FakePool()]
    async with awake_elsewhere(thread.start, [pool.awake() for pool in pools]):
        assert [pool.told for pool in pools] == [["rewardpool"], ["rewardpool"]]
        assert not any(pool.asleep.is_set() for pool in pools)
    assert all(pool.asleep.is_set() for pool in pools)


async def test_a_pool_that_cannot_wake_is_an_error_and_no_other_stays_awake(thread: LoopThread[None]) -> None:
    @asynccontextmanager
    async def broken() -> AsyncGenerator[None, None]:
        raise PoolNotReadyError("it does not wake")
        yield

    pool = FakePool()
    with pytest.raises(PoolNotReadyError, match="does not wake"):
        async with awake_elsewhere(thread.start, [pool.awake(), broken()]):
            pass
    assert await asyncio.to_thread(pool.asleep.wait, WITHIN_SECONDS)


async def test_a_block_that_is_given_up_while_a_pool_wakes_lets_go_of_all(thread: LoopThread[None]) -> None:
    pools = [FakePool(), FakePool(wakes=False)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), awake_elsewhere(thread.start, [pool.awake() for pool in pools]):
            pass
    for pool in pools:
        assert await asyncio.to_thread(pool.asleep.wait, WITHIN_SECONDS)
