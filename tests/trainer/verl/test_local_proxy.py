"""What a reward function's own request becomes behind the door: the client's, towards a real HTTP server."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool import Pool, RewardConfig
from rewardpool.verl.local_proxy import open_door

KEY = "the-key-of-the-tests"
COMPLETION = {"choices": [{"message": {"content": "7"}}]}


class StandInRouter:
    """Answers chat completions to whoever has the key; the first time it breaks the connection."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.refuse = False
        application = web.Application()
        application.router.add_post("/v1/chat/completions", self._answer)
        self.server = TestServer(application)

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({}, status=401)
        self.requests.append(await request.json())
        if self.refuse:
            return web.json_response({"error": {"message": "no such parameter"}}, status=400)
        if len(self.requests) == 1 and request.transport is not None:
            request.transport.abort()
        return web.json_response(COMPLETION)


@pytest.fixture
async def router() -> AsyncIterator[StandInRouter]:
    router = StandInRouter()
    await router.server.start_server()
    yield router
    await router.server.close()


@pytest.fixture
async def address(router: StandInRouter, tmp_path: Any) -> AsyncIterator[str]:
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    config = RewardConfig(url=str(router.server.make_url("/")), key_file=key_file, served_name="judge")
    async with Pool(config) as pool, open_door(pool) as address:
        yield address


async def ask(url: str, **request: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url, **request) as answer:
        return answer.status, await answer.json() if answer.content_type == "application/json" else None


async def test_a_request_without_a_key_is_answered_though_its_connection_broke(
    address: str, router: StandInRouter
) -> None:
    asked = {"model": "/weights/judge", "messages": [], "max_tokens": 4}
    assert await ask(f"http://{address}/v1/chat/completions", json=asked) == (200, COMPLETION)
    assert router.requests == [{**asked, "model": "judge"}] * 2


async def test_what_the_pool_refuses_is_refused_with_its_words(address: str, router: StandInRouter) -> None:
    router.refuse = True
    status, answer = await ask(f"http://{address}/v1/chat/completions", json={})
    assert status == 422
    assert "no such parameter" in answer["error"]["message"]


async def test_what_is_no_json_object_is_not_sent(address: str, router: StandInRouter) -> None:
    for data in ("{", "[1]"):
        status, _ = await ask(f"http://{address}/v1/chat/completions", data=data)
        assert status == 400
    assert router.requests == []


async def test_without_the_letters_in_its_path_the_address_leads_nowhere(address: str, router: StandInRouter) -> None:
    host, _, letters = address.partition("/")
    assert len(letters) >= 32
    assert (await ask(f"http://{host}/v1/chat/completions", json={}))[0] == 404
    assert router.requests == []
