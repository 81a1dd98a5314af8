"""Answers byte by byte, and what becomes of the connection after each. Pure HTTP: no pool is in sight."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.posts import post

from rewardpool._client.connections import connect, http
from rewardpool._client.connections.connect import UnreachableError
from rewardpool._client.connections.exchange import BrokenError, HttpAnswer
from rewardpool._client.connections.http import HttpClient
from rewardpool._client.connections.target import target
from rewardpool_api.contract import InvalidResponseError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n4.5"
CLOSE = b""
"""In a script: the server closes the connection."""


class Scripted:
    """A server that answers each request with the next of these pieces, whatever was asked."""

    def __init__(self, *answers: Sequence[bytes]) -> None:
        self._answers = iter(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.arrived = asyncio.Event()
        """A request came."""
        self.left = asyncio.Event()
        """The client closed a connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                self.requests.append(head + await reader.readexactly(int(length.partition(b":")[2])))
                self.arrived.set()
                for piece in next(self._answers):
                    if piece == CLOSE:
                        writer.close()
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
            writer.close()

    def close_all(self) -> None:
        """Close what is open, as a server does with connections that are idle."""
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def serving(
    *answers: Sequence[bytes], tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Scripted, HttpClient]]:
    scripted = Scripted(*answers)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0, ssl=tls)
    scripted.port = server.sockets[0].getsockname()[1]
    client = HttpClient()
    async with asyncio.timeout(10):
        try:
            yield scripted, client
        finally:
            await client.close()
            scripted.close_all()
            server.close()
            await server.wait_closed()


async def ask(scripted: Scripted, client: HttpClient) -> HttpAnswer:
    to = target(f"http://127.0.0.1:{scripted.port}/v1/embeddings", key="secret", tls=None)
    return await post(client, to, b"x-request-id: 7\r\n", b"{}")


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([OK], id="whole"),
        pytest.param([OK[i : i + 1] for i in range(len(OK))], id="byte by byte"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n4\r\n", b"2\r\n.5\r\n0\r\n\r\n"], id="chunks"
        ),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n", OK], id="after a continue"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n" + OK], id="with a continue"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n4.", b"5", CLOSE], id="until the connection's end"),
        pytest.param([b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n4.5", CLOSE], id="HTTP 1.0"),
    ],
)
async def test_an_answer_is_read_however_it_comes(pieces: list[bytes]) -> None:
    async with serving(pieces) as (scripted, client):
        assert await ask(scripted, client) == HttpAnswer(200, b"4.5", None)


async def test_a_request_has_what_a_router_needs_to_see() -> None:
    async with serving([OK]) as (scripted, client):
        await ask(scripted, client)
    head, _, body = scripted.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/embeddings HTTP/1.1"
    assert f"Host: 127.0.0.1:{scripted.port}".encode() in lines
    assert {b"Authorization: Bearer secret", b"Content-Type: application/json", b"x-request-id: 7"} <= set(lines)
    assert body == b"{}"


async def test_a_connection_is_used_again() -> None:
    async with serving([OK], [OK], [OK]) as (scripted, client):
        for _ in range(3):
            await ask(scripted, client)
        assert scripted.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK + OK, id="two answers to one request"),
        pytest.param(OK + b"rubbish", id="more than was said"),
        pytest.param(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), id="the server wants it closed"),
    ],
)
async def test_a_connection_that_may_hold_more_than_the_answer_is_not_used_again(answer: bytes) -> None:
    async with serving([answer], [OK.replace(b"4.5", b"7.5")]) as (scripted, client):
        assert (await ask(scripted, client)).body == b"4.5"
        assert (await ask(scripted, client)).body == b"7.5"
        assert scripted.connections == 2


async def test_a_connection_is_used_for_about_a_minute() -> None:
    now = 0.0
    async with serving(*[[OK]] * 200) as (scripted, _):
        client = HttpClient(clock=lambda: now)
        for _ in range(200):
            await ask(scripted, client)
            now += 1.0
        await client.close()
        assert 200 // 90 <= scripted.connections <= 1 + 200 // 30


async def test_an_answer_that_comes_after_its_caller_has_left_reaches_nobody() -> None:
    async with serving([], [OK]) as (scripted, client):
        given_up = asyncio.create_task(ask(scripted, client))
        await scripted.arrived.wait()
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert (await ask(scripted, client)).body == b"4.5"
        assert scripted.connections == 2


async def test_a_kept_connection_that_the_server_closed_costs_nothing_but_a_new_one() -> None:
    async with serving([OK], [OK]) as (scripted, client):
        await ask(scripted, client)
        scripted.close_all()
        assert (await ask(scripted, client)).body == b"4.5"


async def test_a_kept_connection_that_breaks_under_a_request_is_made_up_for_once() -> None:
    async with serving([OK], [CLOSE], [CLOSE]) as (scripted, client):
        await ask(scripted, client)
        with pytest.raises(BrokenError):
            await ask(scripted, client)
        assert len(scripted.requests) == 3


async def test_a_kept_connection_that_breaks_within_an_answer_is_not_made_up_for() -> None:
    async with serving([OK], [OK[:-1], CLOSE]) as (scripted, client):
        await ask(scripted, client)
        with pytest.raises(BrokenError):
            await ask(scripted, client)
        assert len(scripted.requests) == 2


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([CLOSE], id="nothing"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Len", CLOSE], id="half of the headers"),
        pytest.param([OK[:-1], CLOSE], id="less than was said"),
        pytest.param([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n4\r\n", CLOSE], id="no last chunk"),
    ],
)
async def test_half_an_answer_is_none(pieces: list[bytes]) -> None:
    async with serving(pieces) as (scripted, client):
        with pytest.raises(BrokenError):
            await ask(scripted, client)


@pytest.mark.parametrize("piece", [b"\x15\x03\x03\x00\x02\x02\x46", b"SSH-2.0-server\r\n", b"HTTP/1.1 abc\r\n\r\n"])
async def test_what_is_no_http_means_that_nobody_is_there(piece: bytes) -> None:
    async with serving([piece]) as (scripted, client):
        with pytest.raises(UnreachableError, match="not HTTP"):
            await ask(scripted, client)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: ", id="one header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", id="chunk"),
    ],
)
async def test_an_answer_without_end_is_given_up(head: bytes) -> None:
    async with serving([head, *[b"x" * 65_536] * 200]) as (scripted, client):
        with pytest.raises(InvalidResponseError, match="larger than"):
            await ask(scripted, client)


async def test_a_compressed_answer_is_refused_by_name() -> None:
    gzip = OK.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    async with serving([gzip]) as (scripted, client):
        with pytest.raises(InvalidResponseError, match="gzip"):
            await ask(scripted, client)


async def test_retry_after_is_handed_on() -> None:
    async with serving([b"HTTP/1.1 429 Slow\r\nRETRY-AFTER: 7\r\nContent-Length: 0\r\n\r\n"]) as (scripted, client):
        assert await ask(scripted, client) == HttpAnswer(429, b"", "7")


async def test_nobody_at_the_address_is_said() -> None:
    async with serving() as (scripted, client):
        pass
    client = HttpClient()
    with pytest.raises(UnreachableError, match=r"^Connection refused$"):
        await ask(scripted, client)
    await client.close()


async def test_a_name_that_nobody_has_is_said() -> None:
    client = HttpClient()
    with pytest.raises(UnreachableError):
        await post(client, target("http://no-such-name.invalid/", key=None, tls=None), b"", b"{}")
    await client.close()


async def test_connections_without_requests_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_SECONDS", 0.01)
    async with serving([OK], [OK]) as (scripted, client):
        await ask(scripted, client)
        await scripted.left.wait()
        await ask(scripted, client)
        assert scripted.connections == 2


def test_a_key_that_would_become_two_headers_is_refused() -> None:
    with pytest.raises(ValueError, match="HTTP header"):
        target("http://router", key="a\r\nx-evil: 1", tls=None)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    names = "subjectAltName=IP:127.0.0.1"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=router", "-addext", names]
    command = ["openssl", "req", *options, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


async def test_tls_is_spoken_and_verified(certificate: tuple[Path, Path]) -> None:
    key, public = certificate
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(public, key)
    knows, knows_not = ssl.create_default_context(cafile=str(public)), ssl.create_default_context()
    async with serving([OK], tls=server_side) as (scripted, client):
        url = f"https://127.0.0.1:{scripted.port}/"
        assert (await post(client, target(url, key=None, tls=knows), b"", b"{}")).body == b"4.5"
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await post(client, target(url, key=None, tls=knows_not), b"", b"{}")


async def test_a_caller_that_leaves_as_tls_is_agreed_takes_no_socket_from_the_next_one(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = certificate
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(public, private)
    connected = http._Connection.connection_made

    async with serving([OK], [OK], tls=server_side) as (scripted, client):
        to = target(f"https://127.0.0.1:{scripted.port}/", key=None, tls=ssl.create_default_context(cafile=str(public)))
        leaves = asyncio.create_task(post(client, to, b"", b"{}"))

        def leave(connection: http._Connection, transport: asyncio.BaseTransport) -> None:
            connected(connection, transport)
            leaves.cancel()

        monkeypatch.setattr(http._Connection, "connection_made", leave)
        with pytest.raises(asyncio.CancelledError):
            await leaves
        monkeypatch.undo()
        assert (await post(client, to, b"", b"{}")).body == b"4.5"


async def test_a_request_that_is_cancelled_in_the_moment_of_its_answer_takes_no_connection_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving([OK], [OK]) as (scripted, client):
        first = asyncio.create_task(ask(scripted, client))
        later: list[asyncio.Task[HttpAnswer]] = []
        free = client.free

        def free_and_use(connection: http._Connection) -> None:
            free(connection)
            if not later:
                later.append(asyncio.create_task(ask(scripted, client)))
                first.cancel()

        monkeypatch.setattr(client, "free", free_and_use)
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await later[0]).body == b"4.5"
        assert scripted.connections == 1


async def test_who_waits_for_a_connection_goes_on_one_that_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "AT_A_TIME", 1)
    async with serving(*[[OK]] * 20) as (scripted, client):
        answers = await asyncio.gather(*(ask(scripted, client) for _ in range(20)))
    assert {answer.body for answer in answers} == {b"4.5"}
    assert scripted.connections < 20


async def test_who_waits_for_a_connection_and_leaves_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "AT_A_TIME", 1)
    async with serving(*[[OK]] * 3) as (scripted, client):
        asked = [asyncio.create_task(ask(scripted, client)) for _ in range(3)]
        await asyncio.sleep(0)
        asked[1].cancel()
        first, left, last = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(left, asyncio.CancelledError)
    assert (first, last, len(scripted.requests)) == (HttpAnswer(200, b"4.5", None), HttpAnswer(200, b"4.5", None), 2)


async def test_a_client_that_is_closed_ends_those_that_wait_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "AT_A_TIME", 1)
    async with serving() as (scripted, client):
        asked = [asyncio.create_task(ask(scripted, client)) for _ in range(3)]
        await scripted.arrived.wait()
        await client.close()
        ends = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(end) for end in ends} <= {BrokenError, UnreachableError}
