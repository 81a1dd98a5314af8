"""The client while its pool's key changes, with FakeWorker for a router: nothing is lost, a mistake is told."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web
from support.fake_worker import Behaviour, FakeWorker, right, says
from support.pauses import no_pause

from rewardpool import Endpoint, RewardConfig, Sample
from rewardpool._client.pool import injected_pool
from rewardpool.errors import PoolAccessError


def taking(keys: Callable[[], str]) -> Behaviour:
    """A router that takes the one key that the function names just then."""

    async def behaviour(request: web.Request) -> web.StreamResponse:
        admitted = request.headers.get("Authorization") == f"Bearer {keys()}"
        return await (right if admitted else says("", status=401))(request)

    return behaviour


class Rotation:
    """Stands in for discovery, and for routers behind one address that change their key one after the other."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.secret: tuple[str, ...] = ("old",)
        self.routers = ["old"]
        self._asked = 0

    async def find(self, _: RewardConfig, **__: object) -> Endpoint:
        key, *others = self.secret
        return Endpoint(url=self.url, key=key, other_keys=tuple(others), pool="rl/rm", served_name="rm", origin="test")

    def next_router(self) -> str:
        self._asked += 1
        return self.routers[self._asked % len(self.routers)]


async def test_every_sample_is_scored_while_half_of_the_routers_have_another_key() -> None:
    rotation = Rotation("")
    async with FakeWorker(*[taking(rotation.next_router)] * 1000) as worker:
        rotation.url = worker.url
        config = RewardConfig(pool="rl/rm", concurrency=4)
        async with injected_pool(config, find=rotation.find, call_later=no_pause) as pool:
            assert await pool.score(Sample(text="four")) == 4.0
            rotation.secret, rotation.routers = ("new", "old"), ["old", "new", "new"]
            assert [await pool.score(Sample(text="four")) for _ in range(50)] == [4.0] * 50
            rotation.secret, rotation.routers = ("new",), ["new"]
            assert await pool.score(Sample(text="four")) == 4.0
            report = pool.report()
    assert (report.scored, report.unscored) == (52, 0)
    assert report.retries["unauthorized"] > 0


async def test_a_key_that_worked_is_waited_for_until_the_place_it_is_read_from_has_the_new_one() -> None:
    rotation = Rotation("")
    async with FakeWorker(*[taking(rotation.next_router)] * 1000) as worker:
        rotation.url = worker.url

        def pause(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
            # A mounted key file is as late as the kubelet.
            if len(worker.requests) == 10:
                rotation.secret = ("new",)
            return no_pause(seconds, then)

        injected = {"find": rotation.find, "call_later": pause, "clock": lambda: len(worker.requests)}
        async with injected_pool(RewardConfig(pool="rl/rm"), **injected) as pool:
            await pool.score(Sample(text="four"))
            rotation.routers = ["new"]
            assert await pool.score(Sample(text="four")) == 4.0


async def test_another_key_is_tried_without_a_pause() -> None:
    pauses: list[float] = []

    def pause(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        pauses.append(seconds)
        return no_pause(seconds, then)

    rotation = Rotation("")
    rotation.secret, rotation.routers = ("new", "old"), ["old"]
    async with FakeWorker(*[taking(rotation.next_router)] * 1000) as worker:
        rotation.url = worker.url
        async with injected_pool(RewardConfig(pool="rl/rm"), find=rotation.find, call_later=pause) as pool:
            assert await pool.score(Sample(text="four")) == 4.0
            assert pool.report().retries["unauthorized"] == 1
    assert pauses == []


async def test_a_pool_that_goes_on_refusing_is_no_fault_of_the_sample() -> None:
    rotation = Rotation("")
    async with FakeWorker(*[taking(rotation.next_router)] * 100_000) as worker:
        rotation.url = worker.url
        config = RewardConfig(pool="rl/rm", on_failure="skip", timeout=0.2)
        async with injected_pool(config, find=rotation.find, call_later=no_pause) as pool:
            await pool.score(Sample(text="four"))
            rotation.routers = ["another"]
            with pytest.raises(PoolAccessError, match="does not take the key") as caught:
                await pool.outcome(Sample(text="four"))
            assert pool.report().unscored == 1
    assert "old" not in str(caught.value)


async def test_each_of_several_keys_is_tried_once_where_none_ever_worked() -> None:
    rotation = Rotation("")
    rotation.secret, rotation.routers = ("old", "older"), ["another"]
    async with FakeWorker(*[taking(rotation.next_router)] * 100) as worker:
        rotation.url = worker.url
        async with injected_pool(RewardConfig(pool="rl/rm"), find=rotation.find, call_later=no_pause) as pool:
            with pytest.raises(PoolAccessError):
                await pool.score(Sample(text="four"))
    assert [headers["authorization"] for headers in worker.headers] == ["Bearer old", "Bearer older"]
