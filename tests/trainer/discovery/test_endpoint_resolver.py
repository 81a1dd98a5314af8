"""A pool that changes without trouble is followed, and every router behind one address is used."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from typing import Any, Self

from support.fake_worker import FakeWorker

from rewardpool import Endpoint, Pool, RewardConfig, Sample
from rewardpool._client.pool import injected_pool
from rewardpool.errors import PoolAccessError


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Directory:
    """Stands in for discovery: says what `found` is now."""

    def __init__(self, found: Endpoint | Exception) -> None:
        self.found = found
        self.lookups = 0
        self.looked = asyncio.Event()

    async def __call__(self, _: RewardConfig, **__: Any) -> Endpoint:
        self.lookups += 1
        self.looked.set()
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def endpoint(url: str, key: str = "old") -> Endpoint:
    return Endpoint(url=url, key=key, pool="rl/skywork", served_name="skywork", origin="a test")


async def later(pool: Pool, clock: Clock, directory: Directory, *, seconds: float) -> None:
    """Use the pool after so many seconds, and wait for the look-up that this is the time for."""
    clock.now += seconds
    directory.looked.clear()
    await pool.score(Sample(text="four"))
    await directory.looked.wait()
    await asyncio.sleep(0)


async def test_a_changed_key_is_known_before_a_request_fails() -> None:
    clock = Clock()
    async with FakeWorker() as worker:
        directory = Directory(endpoint(worker.url))
        async with injected_pool(RewardConfig(pool="rl/skywork"), find=directory, clock=clock) as pool:
            directory.found = endpoint(worker.url, key="new")
            await later(pool, clock, directory, seconds=75)
            await pool.score(Sample(text="four"))
            report = pool.report()
    assert worker.headers[-1]["authorization"] == "Bearer new"
    assert (report.rediscoveries, report.retries) == (1, {})


async def test_a_pool_that_is_used_is_looked_up_about_once_a_minute() -> None:
    clock = Clock()
    async with FakeWorker() as worker:
        directory = Directory(endpoint(worker.url))
        async with injected_pool(RewardConfig(pool="rl/skywork"), find=directory, clock=clock) as pool:
            for _ in range(600):
                clock.now += 1.0
                await pool.score(Sample(text="four"))
    assert 600 / 75 <= directory.lookups - 1 <= 600 / 45


async def test_a_look_up_that_fails_disturbs_no_request() -> None:
    clock = Clock()
    async with FakeWorker() as worker:
        directory = Directory(endpoint(worker.url))
        async with injected_pool(RewardConfig(pool="rl/skywork"), find=directory, clock=clock) as pool:
            directory.found = PoolAccessError("the API server does not answer")
            await later(pool, clock, directory, seconds=75)
            assert await pool.score(Sample(text="four")) == 4.0


class SimulatedService:
    """Stands in for a Service's address: hands each new connection to the next of its routers."""

    def __init__(self, *routers: FakeWorker) -> None:
        self.routers = list(routers)
        self._turn = itertools.count()
        self._stack = AsyncExitStack()
        self.url = ""

    async def __aenter__(self) -> Self:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self._stack.callback(server.close)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = int(self.routers[next(self._turn) % len(self.routers)].url.rpartition(":")[2])
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


async def test_a_router_replica_that_comes_later_gets_its_share() -> None:
    clock, config = Clock(), {"concurrency": 4, "hedge": False}
    async with (
        FakeWorker() as first,
        FakeWorker() as second,
        SimulatedService(first) as service,
        # All connections live equally long, so that the four of each age are spread evenly.
        injected_pool(RewardConfig(url=service.url, **config), clock=clock, uniform=lambda a, b: (a + b) / 2) as pool,
    ):
        await score_for(pool, clock, seconds=60)
        service.routers.append(second)
        await score_for(pool, clock, seconds=120)
        before = len(first.requests), len(second.requests)
        await score_for(pool, clock, seconds=60)
    shares = len(first.requests) - before[0], len(second.requests) - before[1]
    assert min(shares) >= 0.3 * sum(shares)


async def score_for(pool: Pool, clock: Clock, *, seconds: int) -> None:
    """Four samples at a time, a second for each time."""
    for _ in range(seconds):
        clock.now += 1.0
        await asyncio.gather(*(pool.score(Sample(text="four")) for _ in range(4)))
