"""HTTP/1.1 as scoring needs it: POSTs with small answers, over connections that are kept open.

    a kept connection, the one that was answered last -> broken before an answer began: a new one, once
    else a new one                                    -> answered: kept, unless it is old or the server closes it

One address may stand for several routers: a Kubernetes Service chooses one for each connection, and a connection that
is kept stays with it, so a new replica would get nothing. So none is kept for longer than a minute and a half, and
what is opened in its place may go to any router.

aiohttp spends more on one of these requests than router and worker do, and most of that on the garbage collector: it
makes some 90 objects for each request in flight (docs/benchmarks.md has the figures of the transports that were
compared). Here a request in flight is one future. The parser is httptools', the one of uvicorn; names are resolved
and addresses tried by aiohappyeyeballs, as aiohttp does.

What is not here: redirects (the key would go to wherever they point), compression (none is asked for), cookies,
proxies, pipelining. Deadlines are the caller's: a request that is cancelled closes its connection.
"""

import asyncio
import logging
import os
import random
import ssl
import time
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from typing import NamedTuple

import aiohappyeyeballs
import httptools
from yarl import URL

from rewardpool.client.addresses import Addresses

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""For one connection to the router. The address of a pod that is gone does not refuse, it is silent."""
KEEP_SECONDS = 15.0
"""That a connection is kept without a request. Servers and what lies between them close those that are idle longer."""
LIFE_SECONDS = (30.0, 90.0)
"""Shortest and longest time for which a connection is used; by chance, so that not all are opened anew at once."""
NEXT_ADDRESS_SECONDS = 0.25
"""After which the next address of a name is tried beside one that is silent (RFC 8305)."""
MAX_ANSWER_BYTES = 4 << 20
"""Of one answer with its headers. A score takes a hundred bytes and a judgement some kilobytes."""


def in_words(error: OSError) -> str:
    """What keeps a connection from being made, without the system's number for it."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


class UnreachableError(Exception):
    """There is no connection, or who answers on it speaks no HTTP."""


class BrokenError(Exception):
    """The connection broke before the answer was whole."""


class StrangeAnswerError(Exception):
    """An answer that is too large, or compressed."""


class Answer(NamedTuple):
    """What came back; `retry_after` is that header's text."""

    status: int
    body: bytes
    retry_after: str | None


class Target(NamedTuple):
    """Where requests go: what identifies a connection, and what begins every request on it."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    """None for plain HTTP."""
    head: bytes
    """The request line, and the headers that all requests have."""

    @property
    def origin(self) -> tuple[str, int, ssl.SSLContext | None]:
        """Requests to the same one share connections."""
        return self[:3]


@lru_cache(maxsize=64)
def target(url: str, *, key: str | None, tls: ssl.SSLContext | None) -> Target:
    """For POSTs of JSON to a URL, with a bearer `key` if there is one; `tls` verifies https.

    Raises:
        ValueError: The key has a character that no header may have.
    """
    parsed = URL(url)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ValueError("the pool's key has a character in it that no HTTP header may have, such as a line's end")
    lines = [
        f"POST {parsed.raw_path_qs} HTTP/1.1",
        f"Host: {parsed.host_port_subcomponent}",
        f"User-Agent: {_user_agent()}",
        "Accept: */*",
        "Content-Type: application/json",
        *([f"Authorization: Bearer {key}"] if key is not None else []),
    ]
    secure = (tls or _default_context()) if parsed.scheme == "https" else None
    return Target(parsed.raw_host or "", parsed.port or 80, secure, "".join(f"{line}\r\n" for line in lines).encode())


@lru_cache(maxsize=1)
def _default_context() -> ssl.SSLContext:
    return ssl.create_default_context()


@lru_cache(maxsize=1)
def _user_agent() -> str:
    return f"rewardpool/{version('rewardpool')}"


class HttpClient:
    """Connections to any number of targets, on the running event loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Open nothing yet; `clock` gives monotonic seconds, `uniform` a random number between two bounds."""
        self._clock = clock
        self._uniform = uniform
        self._loop = asyncio.get_running_loop()
        self._idle: dict[tuple[str, int, ssl.SSLContext | None], dict[_Connection, float]] = {}
        """Of each origin those without a request, and since when; the one that was answered last is the last."""
        self._open: dict[_Connection, float] = {}
        """All, and until when each is used."""
        self._names = Addresses(clock)
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def post(self, to: Target, headers: bytes, body: bytes) -> Answer:
        """Send a request, and return the answer to it.

        Args:
            to: Where to.
            headers: Further header lines, each with its end.
            body: JSON.

        Raises:
            UnreachableError: Nobody can be reached there.
            BrokenError: Somebody was, and is no more.
            StrangeAnswerError: An answer came that is none of a pool's.
        """
        request = b"%b%bContent-Length: %d\r\n\r\n%b" % (to.head, headers, len(body), body)
        kept = self._idle.get(to.origin)
        if kept:
            try:
                return await kept.popitem()[0].exchange(request)
            except _StaleError:
                # A server closes those that were idle, and one that was restarted knows none of them.
                log.debug("a kept connection to %s:%d broke; the request goes on a new one", to.host, to.port)
        connection = await self._connect(to)
        return await connection.exchange(request)

    async def close(self) -> None:
        """Close all connections; what is in flight fails, and so does what is asked from now on."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # their ends are told in the loop's next round

    async def _connect(self, to: Target) -> "_Connection":
        if self._is_closed:
            raise UnreachableError("the client is closed")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = await self._names.of(to.host, to.port)
                delay = NEXT_ADDRESS_SECONDS if len(addresses) > 1 else None
                sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=delay, interleave=1)
                # The socket is the loop's from here on, also when this fails: closed here, its number would be a new
                # connection's while the loop still ends the old one, and the new one would be refused.
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self, to),
                    sock=sock,
                    ssl=to.tls,
                    server_hostname=to.host if to.tls is not None else None,
                )
        except TimeoutError:
            self._names.forget(to.host, to.port)
            raise UnreachableError(f"no connection within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            self._names.forget(to.host, to.port)
            raise UnreachableError(in_words(error)) from error
        return connection

    def opened(self, connection: "_Connection") -> None:
        """Know one that is open."""
        self._open[connection] = self._clock() + self._uniform(*LIFE_SECONDS)

    def free(self, connection: "_Connection") -> None:
        """Keep one that has been answered, unless it is old."""
        if self._clock() >= self._open[connection]:
            connection.close()
            return
        self._idle.setdefault(connection.to.origin, {})[connection] = self._clock()
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_SECONDS, self._close_idle)

    def lost(self, connection: "_Connection") -> None:
        """Forget one that is closed."""
        self._open.pop(connection, None)
        self._idle.get(connection.to.origin, {}).pop(connection, None)

    def _close_idle(self) -> None:
        limit = self._clock() - KEEP_SECONDS
        for kept in self._idle.values():
            for connection in [connection for connection, since in kept.items() if since <= limit]:
                del kept[connection]
                connection.abort()
        self._idle = {origin: kept for origin, kept in self._idle.items() if kept}
        self._sweep = self._loop.call_later(KEEP_SECONDS, self._close_idle) if self._idle else None


class _StaleError(Exception):
    """A connection that was used before broke, and no answer had begun."""


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time. Its `on_…` methods are called by the parser."""

    __slots__ = ("_answer", "_client", "_is_used", "_parser", "_transport", "_waiter", "to")

    def __init__(self, client: HttpClient, to: Target) -> None:
        self.to = to
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._answer = _Incoming()
        self._is_used = False

    async def exchange(self, request: bytes) -> Answer:
        """Send the bytes of a request, and return the answer."""
        if self._transport.is_closing():  # its end is not told yet, and what is written to it is lost
            raise _StaleError if self._is_used else BrokenError("the server closed it")
        self._answer = _Incoming()
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        self._transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            if self._waiter is waiter:  # else it was answered in this moment, and another request may be on it by now
                self._waiter = None
                self.abort()  # an answer may be on its way, and the next request must not get it
            raise

    def close(self) -> None:
        """Close it; what is written to it still goes out."""
        self._transport.close()

    def abort(self) -> None:
        """Close it now."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # those of create_connection
        self._client.opened(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        answer = self._answer
        if self._waiter is None:
            self.abort()  # nobody asked: the next request would take it for its answer
            return
        answer.size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            answer.keep = False
            if not answer.is_whole:
                self._fail(UnreachableError(f"the answer is no HTTP: {error}"))
                return
        if answer.is_whole:
            self._succeed()
        elif answer.size > MAX_ANSWER_BYTES:
            self._fail(StrangeAnswerError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        answer = self._answer
        self._client.lost(self)
        if self._waiter is None:
            return
        if answer.size == 0 and self._is_used:
            self._fail(_StaleError())
        elif error is None and answer.ends_with_connection:
            answer.keep = False
            self._succeed()
        else:
            self._fail(BrokenError(str(error or "") or "the server closed it"))

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._answer.is_whole:
            self._answer.keep = False  # the second one to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the answer."""
        answer = self._answer
        match name.lower():
            case b"content-length" | b"transfer-encoding":
                answer.has_length = True
            case b"retry-after":
                answer.retry_after = value.decode("latin-1")
            case b"content-encoding" if value.lower() != b"identity":
                answer.compression = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All headers of the answer are there."""
        if not self._answer.is_whole:
            self._answer.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        """A part of the answer's body."""
        if not self._answer.is_whole:
            self._answer.parts.append(part)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        answer = self._answer
        if not answer.is_whole and 100 <= answer.status < 200:
            answer.status = 0  # "continue", and the like: the answer proper follows
        elif not answer.is_whole:
            answer.is_whole = True
            answer.keep = answer.keep and self._parser.should_keep_alive()

    def _succeed(self) -> None:
        answer, waiter, self._waiter = self._answer, self._waiter, None
        self._is_used = True
        if answer.keep:
            self._client.free(self)
        else:
            self.close()
        if waiter is None or waiter.done():
            return
        if answer.compression:
            problem = f"the answer is compressed ({answer.compression}), for which nobody asked"
            waiter.set_exception(StrangeAnswerError(problem))
        else:
            waiter.set_result(Answer(answer.status, b"".join(answer.parts), answer.retry_after))

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


class _Incoming:
    """What has come of an answer."""

    __slots__ = ("compression", "has_length", "is_whole", "keep", "parts", "retry_after", "size", "status")

    def __init__(self) -> None:
        self.keep = True
        """Whether the connection can be used again."""
        self.status = 0
        """0 before its headers are there."""
        self.size = 0
        """Bytes, headers among them."""
        self.parts: list[bytes] = []
        self.has_length = False
        """It says itself where it ends."""
        self.retry_after: str | None = None
        self.compression = ""
        self.is_whole = False

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is how this answer is to end."""
        return self.status != 0 and not self.has_length
