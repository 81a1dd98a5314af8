"""What the operator reads of answers that no honest worker or router gives; both are stand-ins here."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rewardpool_operator import probe
from rewardpool_operator.probe import probe_score, read_in_flight, takes_key
from rewardpool_operator.routers import admin as router_admin
from rewardpool_operator.routers.admin import RouterAdmin, RouterError
from rewardpool_runtime.bounded import AnswerTooLargeError, read_excerpt, read_text


class Liar:
    """Answers every request with one status and body."""

    def __init__(self) -> None:
        self.status, self.body, self.keys = 200, "", set[str]()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.server = TestServer(app)

    async def _answer(self, request: web.Request) -> web.Response:
        if self.keys and request.headers.get("Authorization") not in self.keys:
            return web.Response(status=401)
        return web.Response(status=self.status, text=self.body)

    @property
    def url(self) -> str:
        return str(self.server.make_url(""))


@pytest.fixture
async def liar() -> AsyncIterator[Liar]:
    liar = Liar()
    await liar.server.start_server()
    yield liar
    await liar.server.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def router(session: aiohttp.ClientSession, liar: Liar) -> RouterAdmin:
    return RouterAdmin(
        session, flavor="sglang-router", url=liar.url, metrics_url=liar.url, admin_key="k", served_name="rm"
    )


async def test_an_answer_within_the_limit_is_read_whole(liar: Liar, session: aiohttp.ClientSession) -> None:
    liar.body = "x" * 10
    async with session.get(liar.url) as response:
        assert await read_text(response, limit_bytes=10) == liar.body


async def test_an_answer_beyond_the_limit_is_not_read_to_its_end(liar: Liar, session: aiohttp.ClientSession) -> None:
    liar.body = "x" * 11
    async with session.get(liar.url) as response:
        with pytest.raises(AnswerTooLargeError, match="more than 10 bytes"):
            await read_text(response, limit_bytes=10)


async def test_of_a_refusal_only_its_beginning_is_quoted(liar: Liar, session: aiohttp.ClientSession) -> None:
    liar.body = "x" * 1_000_000
    async with session.get(liar.url) as response:
        assert len(await read_excerpt(response)) <= 300


async def test_a_worker_that_answers_without_end_gave_no_score(liar: Liar, session: aiohttp.ClientSession) -> None:
    liar.body = "x" * (probe.MAX_ANSWER_BYTES + 1)
    result = await probe_score(session, liar.url, key="k", served_name="rm", model_type="Discriminative")
    assert (result.ok, "bytes" in (result.error or "")) == (False, True)
    assert await read_in_flight(session, liar.url, key="k") is None


async def test_a_worker_that_answers_with_the_key_is_not_quoted(liar: Liar, session: aiohttp.ClientSession) -> None:
    key = "the-key-that-was-presented"
    liar.body = f"no score, but a {key}"
    result = await probe_score(session, liar.url, key=key, served_name="rm", model_type="Discriminative")
    assert key not in (result.error or "")


@pytest.mark.parametrize("body", ["x" * 101, "[" * 100], ids=["too large", "nested without end"])
async def test_a_router_that_answers_nonsense_refuses(
    liar: Liar, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(router_admin, "MAX_LIST_BYTES", 100)
    liar.body = body
    with pytest.raises(RouterError):
        await router(session, liar).workers()


async def test_a_worker_takes_a_key_when_it_admits_who_presents_it(liar: Liar, session: aiohttp.ClientSession) -> None:
    liar.body, liar.keys = '{"in_flight": 0}', {"Bearer old"}
    assert await takes_key(session, liar.url, key="old")
    assert not await takes_key(session, liar.url, key="new")
    liar.keys = {"Bearer old", "Bearer new"}
    assert await takes_key(session, liar.url, key="new")
