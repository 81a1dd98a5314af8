"""Callers hold no connection of RewardPool's servers for long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from rewardpool_runtime import http_server
from rewardpool_runtime.http_server import Runner, read_body

HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\nX-A: "
WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HALF_A_BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await read_body(request))

    app = web.Application()
    app.router.add_route("*", "/", answer)
    runner = Runner(app, head_seconds=0.05)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
        async with asyncio.timeout(20):
            yield reader, writer
        writer.close()
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD])
async def test_a_head_that_does_not_end_is_not_waited_for(sent: bytes) -> None:
    async with connected() as (reader, writer):
        writer.write(sent)
        assert await reader.read() == b""


async def test_a_connection_is_kept_between_two_requests_and_the_next_head_has_a_deadline_too() -> None:
    async with connected() as (reader, writer):
        for _ in range(2):
            writer.write(WHOLE)
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.1)  # longer than a head may take
        writer.write(HALF_A_HEAD)
        assert await reader.read() == b""


async def test_a_body_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "BODY_SECONDS", 0.05)
    async with connected() as (reader, writer):
        writer.write(HALF_A_BODY)
        assert b" 408 " in await reader.readline()


@pytest.mark.parametrize("path", [b"/", b"/nowhere"])
@pytest.mark.parametrize("expected", [b"nonsense", b"\xff"])
async def test_an_expectation_of_any_bytes_is_refused_without_a_traceback(
    path: bytes, expected: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected() as (reader, writer):
        writer.write(b"GET %b HTTP/1.1\r\nHost: a\r\nExpect: %b\r\n\r\n" % (path, expected))
        assert b" 417 " in await reader.readline()
    assert caplog.records == []
