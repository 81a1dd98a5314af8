"""One for all on an event loop: opened once, closed when the last user leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.fake_worker import FakeWorker, says

from rewardpool import Pool, RewardConfig, Sample
from rewardpool._client.threads.shared import OpenRewards


class Counted:
    """Something to open."""

    def __init__(self, *, failures: int = 0) -> None:
        self.opened = self.closed = 0
        self._failures = failures

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        self.opened += 1
        await asyncio.sleep(0)
        if self.opened <= self._failures:
            raise ConnectionError("away")
        yield self.opened
        self.closed += 1


async def test_whoever_asks_while_it_is_opened_gets_the_same_one() -> None:
    thing, shared = Counted(), OpenRewards()
    assert await asyncio.gather(*(shared.get("a", thing.open) for _ in range(5))) == [1] * 5
    await shared.close()
    assert (thing.opened, thing.closed) == (1, 1)


async def test_what_could_not_be_opened_is_tried_again_by_the_next() -> None:
    thing, shared = Counted(failures=1), OpenRewards()
    with pytest.raises(ConnectionError):
        await shared.get("a", thing.open)
    assert await shared.get("a", thing.open) == 2
    await shared.close()


async def test_one_that_gives_up_leaves_it_to_the_others() -> None:
    thing, shared = Counted(), OpenRewards()
    impatient, patient = (asyncio.create_task(shared.get("a", thing.open)) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == 1
    await shared.close()


async def test_what_is_leased_is_closed_by_the_last_one_who_leaves() -> None:
    thing, shared = Counted(), OpenRewards()
    async with shared.lease("a", thing.open) as first:
        async with shared.lease("a", thing.open) as second:
            assert first == second == 1
        assert thing.closed == 0
    assert (thing.opened, thing.closed) == (1, 1)


async def test_what_was_closed_is_opened_again_for_the_next() -> None:
    thing, shared = Counted(), OpenRewards()
    for number in (1, 2):
        async with shared.lease("a", thing.open) as opened:
            assert opened == number
    assert thing.closed == 2


async def test_what_is_also_kept_for_good_outlives_its_leases() -> None:
    thing, shared = Counted(), OpenRewards()
    await shared.get("a", thing.open)
    async with shared.lease("a", thing.open):
        pass
    assert thing.closed == 0
    await shared.close()
    assert thing.closed == 1


async def test_what_everybody_gave_up_while_it_was_opened_is_not_opened() -> None:
    thing, shared = Counted(), OpenRewards()
    impatient = asyncio.create_task(shared.get("a", thing.open))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    assert await shared.get("a", thing.open) == 2
    await shared.close()


# Pools.


async def scored(pool: Pool, count: int) -> None:
    assert [outcome async for outcome in pool.stream([Sample(text="four")] * count)]


async def test_shared_pools_of_one_config_find_it_once_and_keep_one_limit() -> None:
    async with FakeWorker() as worker:
        config = RewardConfig(url=worker.url, concurrency=3)
        async with Pool.shared(config) as one, Pool.shared(config) as other:
            await asyncio.gather(scored(one, 20), scored(other, 20))
            assert one.endpoint is other.endpoint
            assert worker.most_in_flight <= 3


async def test_shared_pools_count_for_themselves() -> None:
    async with FakeWorker(says("", status=500)) as worker:
        config = RewardConfig(url=worker.url)
        async with Pool.shared(config) as one, Pool.shared(config) as other:
            await one.score(Sample(text="four"))
            await scored(other, 2)
            assert (one.report().scored, one.report().retried) == (1, 1)
            assert (other.report().scored, other.report().retried) == (2, 0)


async def test_a_shared_pool_that_is_left_leaves_the_others_theirs() -> None:
    async with FakeWorker() as worker:
        config = RewardConfig(url=worker.url)
        async with Pool.shared(config) as one:
            async with Pool.shared(config) as other:
                await other.score(Sample(text="four"))
            assert await one.score(Sample(text="four")) == 4.0
        with pytest.raises(RuntimeError, match="the pool is closed"):
            await one.score(Sample(text="four"))


async def test_pools_of_other_configs_share_nothing() -> None:
    async with FakeWorker() as worker:
        one, other = (Pool.shared(RewardConfig(url=worker.url, max_attempts=attempts)) for attempts in (1, 2))
        async with one, other:
            assert one.endpoint is not other.endpoint
