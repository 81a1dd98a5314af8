"""Connections are made in turns, and nobody waits longer for a turn than silence lasts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rewardpool.client import connect
from rewardpool.client.connect import AT_A_TIME, Connector, UnreachableError

ORIGIN = ("127.0.0.1", 1, None)


class Network(Connector):
    """A stand-in for the network: connections are made when the test says so."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop().time)
        self.making = 0
        self.most = 0
        self.answers = asyncio.Event()

    async def _made(self, origin, protocol):
        self.making += 1
        self.most = max(self.most, self.making)
        try:
            await self.answers.wait()
        finally:
            self.making -= 1
        return protocol()


@asynccontextmanager
async def connecting(network: Network, count: int) -> AsyncIterator[list[asyncio.Task[asyncio.Protocol]]]:
    tasks = [asyncio.create_task(network.connect(ORIGIN, asyncio.Protocol)) for _ in range(count)]
    await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        yield tasks


async def test_so_many_are_made_at_a_time_and_all_in_the_end() -> None:
    network = Network()
    async with connecting(network, 3 * AT_A_TIME) as tasks:
        assert network.making == AT_A_TIME
        network.answers.set()
        await asyncio.gather(*tasks)
    assert network.most == AT_A_TIME


async def test_silence_ends_the_wait_of_those_that_have_no_turn_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 0.1)
    network = Network()
    async with connecting(network, 3 * AT_A_TIME) as tasks:
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends} == {UnreachableError}
    assert network.making == 0


async def test_who_leaves_before_its_turn_takes_none() -> None:
    network = Network()
    async with connecting(network, AT_A_TIME + 2) as tasks:
        tasks[-2].cancel()
        await asyncio.sleep(0)
        network.answers.set()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends[-2:]] == [asyncio.CancelledError, asyncio.Protocol]


async def test_one_origin_takes_no_turns_from_another() -> None:
    network = Network()
    async with connecting(network, AT_A_TIME) as tasks:
        other = asyncio.create_task(network.connect(("127.0.0.2", 1, None), asyncio.Protocol))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert network.making == AT_A_TIME + 1
        network.answers.set()
        await asyncio.gather(other, *tasks)
