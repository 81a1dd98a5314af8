"""Which admin key is presented to a router while keys change; the router is a stand-in that takes one."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool_operator.routers.admin import RouterAdmin, RouterDeniedError


class OneKey:
    """Takes this key, and remembers which were presented."""

    def __init__(self, key: str) -> None:
        self.key, self.presented = key, list[str]()
        app = web.Application()
        app.router.add_get("/workers", self._workers)
        self.server = TestServer(app)

    async def _workers(self, request: web.Request) -> web.Response:
        self.presented.append(request.headers["Authorization"].removeprefix("Bearer "))
        admitted = self.presented[-1] == self.key
        return web.json_response({"workers": []}, status=200 if admitted else 401)


@pytest.fixture
async def router() -> AsyncIterator[OneKey]:
    router = OneKey("old")
    await router.server.start_server()
    yield router
    await router.server.close()


@pytest.fixture
async def admin(router: OneKey) -> AsyncIterator[RouterAdmin]:
    url = str(router.server.make_url(""))
    async with aiohttp.ClientSession() as session:
        yield RouterAdmin(session, flavor="sglang-router", url=url, metrics_url=url, admin_key="old", served_name="rm")


async def test_the_key_that_worked_is_presented_first(router: OneKey, admin: RouterAdmin) -> None:
    admin.set_keys(["new", "old"])
    await admin.workers()
    assert router.presented == ["old"]


async def test_a_router_that_was_restarted_with_the_other_key_is_spoken_to(router: OneKey, admin: RouterAdmin) -> None:
    admin.set_keys(["new", "old"])
    router.key = "new"
    await admin.workers()
    await admin.workers()
    assert router.presented == ["old", "new", "new"]


async def test_a_router_that_takes_none_of_them_refuses(router: OneKey, admin: RouterAdmin) -> None:
    admin.set_keys(["new", "newer"])
    with pytest.raises(RouterDeniedError, match="the admin key is refused") as caught:
        await admin.workers()
    assert "newer" not in str(caught.value)


async def test_a_key_that_ended_is_presented_no_more(router: OneKey, admin: RouterAdmin) -> None:
    admin.set_keys(["new"])
    with pytest.raises(RouterDeniedError):
        await admin.workers()
    assert router.presented == ["new"]
