"""HTTP/1.1 as scoring needs it: POSTs with small answers, over connections that are kept open.

    a kept connection, the one that was answered last -> broken before an answer began: a new one, once
    else a new one                                    -> answered: kept, unless it is old or the server closes it

One address may stand for several routers: a Kubernetes Service chooses one for each connection, and a connection that
is kept stays with it, so a new replica would get nothing. So none is kept for longer than a minute and a half, and
what is opened in its place may go to any router.

aiohttp spends more on one of these requests than router and worker do, and most of that on the garbage collector: it
makes some 90 objects for each request in flight (docs/results/client.md has the figures of the transports that were
compared). Here a request in flight is one object, its `Exchange`, which is called when the answer is there; a task is
made only where a connection must be. The parser is httptools', the one of uvicorn.

What is not here: redirects (the key would go to wherever they point), compression (none is requested), cookies,
proxies, pipelining. Deadlines are the caller's: a request that is cancelled closes its connection.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

import httptools

from rewardpool._client.connections.connect import Connector, Origin, Turns, UnreachableError, silence
from rewardpool._client.connections.exchange import BrokenError, Exchange, HttpAnswer
from rewardpool._client.connections.target import RequestTarget
from rewardpool_api.contract import InvalidResponseError

log = logging.getLogger(__name__)

# An idle connection is kept for so long. Servers and what lies between them close those that are idle longer.
KEEP_SECONDS = 15.0
# Shortest and longest use of a connection, drawn at random, so that not all are opened anew at once.
LIFE_SECONDS = (30.0, 90.0)


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
        # Idle connections and since when each is idle; the one that was answered last comes last.
        self._idle: dict[Origin, dict[_Connection, float]] = {}
        # Open connections and until when each may be used.
        self._open: dict[_Connection, float] = {}
        self._connector = Connector(clock)
        self._turns: dict[Origin, Turns[Exchange]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def send(self, exchange: Exchange, to: RequestTarget, headers: bytes, body: bytes) -> None:
        """Send a request; `exchange` is called with what comes of it, later and once, unless it is cancelled.

        Args:
            headers: Further header lines, each with its end.
        """
        exchange.to = to
        exchange.raw = b"%b%bContent-Length: %d\r\n\r\n%b" % (to.head, headers, len(body), body)
        kept = self._idle.get(to.origin)
        connection = kept.popitem()[0] if kept else None
        if connection is None or not connection.begin(exchange):
            self._send_on_new(exchange)

    def send_anew(self, exchange: Exchange) -> None:
        """Send it on a new connection: a server closes those that were idle, and one that restarted knows none."""
        to = exchange.to
        log.debug("a kept connection to %s:%d broke; the request goes on a new one", to.host, to.port)
        self._send_on_new(exchange)

    async def close(self) -> None:
        """Close all connections; what is in flight fails, and so does what is asked from now on."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # their ends are told in the loop's next round

    def _send_on_new(self, exchange: Exchange) -> None:
        turns = self._turns.setdefault(exchange.to.origin, Turns())
        if turns.acquire(exchange, now=self._loop.time()):
            self._connect_for(exchange, turns)

    def _connect_for(self, exchange: Exchange, turns: Turns[Exchange]) -> None:
        connecting = self._loop.create_task(self._connect(exchange.to))
        exchange.connecting = connecting

        def connected(_: asyncio.Task[_Connection]) -> None:
            made = not connecting.cancelled() and connecting.exception() is None
            in_vain = turns.release(connected=made, now=self._loop.time())
            exchange.connected(connecting)
            for one in in_vain:
                one.ends(silence())
            self._give_turns(turns)

        connecting.add_done_callback(connected)

    def _give_turns(self, turns: Turns[Exchange]) -> None:
        while turns.are_free and (waiting := _next_of(turns)) is not None:
            self._send_on_new(waiting)

    async def _connect(self, to: RequestTarget) -> "_Connection":
        if self._is_closed:
            raise UnreachableError("the client is closed")
        return await self._connector.connect(to.origin, lambda: _Connection(self, to))

    def opened(self, connection: "_Connection") -> None:
        if self._is_closed:
            connection.abort()
        self._open[connection] = self._clock() + self._uniform(*LIFE_SECONDS)

    def free(self, connection: "_Connection") -> None:
        """Give an answered connection to a waiting request, or keep it, unless it is old."""
        if self._clock() >= self._open[connection]:
            connection.close()
            return
        origin = connection.to.origin
        turns = self._turns.get(origin)
        if turns is not None and (waiting := _next_of(turns)) is not None:
            if not connection.begin(waiting):
                self._send_on_new(waiting)
            return
        self._idle.setdefault(origin, {})[connection] = self._clock()
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_SECONDS, self._close_idle)

    def lost(self, connection: "_Connection") -> None:
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


def _next_of(turns: Turns[Exchange]) -> Exchange | None:
    """Return the exchange that waits longest and is still wanted."""
    while (waiting := turns.next()) is not None and waiting.is_over:
        pass
    return waiting


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time. Its `on_…` methods are called by the parser."""

    __slots__ = ("_answer", "_client", "_exchange", "_is_used", "_parser", "_transport", "to")

    def __init__(self, client: HttpClient, to: RequestTarget) -> None:
        self.to = to
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Exchange | None = None
        self._answer = _Incoming()
        self._is_used = False

    def begin(self, exchange: Exchange) -> bool:
        """Send a request, unless the connection is closed; its end may not be reported yet, and it would be lost."""
        if self._transport.is_closing():
            return False
        self._answer = _Incoming()
        self._exchange = exchange
        exchange.connection = self
        self._transport.write(exchange.raw)
        return True

    def cancel(self) -> None:
        self._exchange = None
        self.abort()

    def detach(self) -> None:
        """The request that it was made for is gone: keep it for others."""
        if not self._transport.is_closing():
            self._client.free(self)

    def close(self) -> None:
        """Close it; what is written to it still goes out."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # those of create_connection
        self._client.opened(self)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if self._exchange is None:
            self.abort()  # nobody asked: the next request would take it for its answer
            return
        answer.size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            answer.keep = False
            if not answer.is_whole:
                self._fail(UnreachableError(f"the answer is not HTTP: {error}"))
                return
        if answer.is_whole:
            self._succeed()
        elif answer.size > (most := self._exchange.most_bytes):
            self._fail(InvalidResponseError(f"the answer is larger than {most} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        answer = self._answer
        self._client.lost(self)
        exchange = self._exchange
        if exchange is None:
            return
        if answer.size == 0 and self._is_used and exchange.may_go_anew():
            self._exchange = None
            self._client.send_anew(exchange)
        elif error is None and answer.ends_with_connection:
            answer.keep = False
            self._succeed()
        else:
            self._fail(BrokenError(str(error or "") or "the server closed it"))

    def on_message_begin(self) -> None:
        if self._answer.is_whole:
            self._answer.keep = False  # the second one to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        answer = self._answer
        match name.lower():
            case b"content-length" | b"transfer-encoding":
                answer.has_length = True
            case b"retry-after":
                answer.retry_after = value.decode("latin-1")
            case b"content-encoding" if value.lower() != b"identity":
                answer.compression = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if not self._answer.is_whole:
            self._answer.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        if not self._answer.is_whole:
            self._answer.parts.append(part)

    def on_message_complete(self) -> None:
        answer = self._answer
        if not answer.is_whole and 100 <= answer.status < 200:
            answer.status = 0  # "continue", and the like: the answer proper follows
        elif not answer.is_whole:
            answer.is_whole = True
            answer.keep = answer.keep and self._parser.should_keep_alive()

    def _succeed(self) -> None:
        answer, exchange, self._exchange = self._answer, self._exchange, None
        self._is_used = True
        if answer.keep:
            self._client.free(self)
        else:
            self.close()
        if exchange is None:
            return
        if answer.compression:
            problem = f"the answer is compressed ({answer.compression}), which was not requested"
            exchange.ends(InvalidResponseError(problem))
        else:
            # Trap: what this calls may send the next request on this connection. Nothing may come after it.
            exchange.ends(HttpAnswer(answer.status, b"".join(answer.parts), answer.retry_after))

    def _fail(self, error: Exception) -> None:
        exchange, self._exchange = self._exchange, None
        self.abort()
        if exchange is not None:
            exchange.ends(error)


class _Incoming:
    __slots__ = ("compression", "has_length", "is_whole", "keep", "parts", "retry_after", "size", "status")

    def __init__(self) -> None:
        # Whether the connection can be used again.
        self.keep = True
        self.status = 0
        """0 before its headers are there."""
        # Bytes, headers among them.
        self.size = 0
        self.parts: list[bytes] = []
        self.has_length = False
        self.retry_after: str | None = None
        self.compression = ""
        self.is_whole = False

    @property
    def ends_with_connection(self) -> bool:
        return self.status != 0 and not self.has_length
