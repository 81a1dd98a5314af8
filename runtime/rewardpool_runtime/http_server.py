"""Server of aiohttp's applications: callers hold nothing for long, and broken HTTP leaves one line in a log.

aiohttp waits for the end of a request's head, and handlers for that of its body, without a deadline.
"""

import asyncio
import logging
from typing import Any, Final

from aiohttp import ClientConnectionResetError, ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger("rewardpool.http")

HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 600.0  # longer than routers keep theirs


# A foreign page whose name was made to lead here (DNS rebinding) sends its own name in the Host header.
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


def is_of_another_page(request: web.Request, hosts: frozenset[str] | None, *, linked: bool = False) -> str | None:
    """Return why a request may not be answered, where a browser sent it for a page of somebody else's.

    Args:
        hosts: Names by which this server may be asked, without ports; None means any.
        linked: Whether others may link to what is asked for.
    """
    if hosts is not None and host_name(request.host) not in hosts:
        return f"this is not served as {request.host!r:.80}"
    if not linked and request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return "other sites' pages are not answered"
    return None


def host_name(host: str) -> str:
    """Return the name of a Host header, without the port, in small letters."""
    name, _, port = host.rpartition(":")
    return (name if port.isdecimal() and name else host).lower()


OF_CALLERS: Final = (HttpProcessingError, ClientPayloadError, web.RequestPayloadError, ClientConnectionResetError)


class Runner(web.AppRunner):  # noqa: TID251 - the one that is meant
    """Serves an application; the arguments are those of `web.AppRunner`, `head_seconds` is for tests."""

    def __init__(self, app: web.Application, *, head_seconds: float = HEAD_SECONDS, **given: Any) -> None:
        # Nobody compresses what these servers take, and a small body would become a large one.
        kept: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": IDLE_SECONDS,
            "auto_decompress": False,
            "logger": log,
        }
        super().__init__(app, **kept, **given)
        self._head_seconds = head_seconds

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server
        server.head_seconds = self._head_seconds  # type: ignore[attr-defined]
        return server


class _Server(web.Server):
    head_seconds: float

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    """Ends when a head is not there in time."""

    _manager: Any
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages or self._current_request is not None:
            self._forget_deadline()
        elif self._deadline is None:
            self._expect_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, UnicodeEncodeError) and not request.headers.get("Expect", "").isascii():
            # aiohttp quotes the header in its refusal, and fails at bytes that are no text.
            return web.Response(status=417, text="the Expect header is not known\n")
        return super().handle_error(request, status, exc, message)

    def _expect_head(self) -> None:
        self._deadline = self._loop.call_later(self._manager.head_seconds, self.force_close)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


async def read_body(request: web.Request) -> bytes:
    """Return a request's whole body.

    Raises:
        HTTPRequestTimeout: It does not end.
        HTTPRequestEntityTooLarge: It is longer than the application takes.
        HTTPBadRequest: It is not encoded as its head says.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the body did not end within {BODY_SECONDS:g} s\n") from None
    except (web.RequestPayloadError, ClientPayloadError, HttpProcessingError) as error:
        raise web.HTTPBadRequest(text=f"the body cannot be read: {error}\n") from None


def is_a_fault_of_ours(record: logging.LogRecord) -> bool:
    """Return whether a record is worth a traceback: not what is said of bytes that are no HTTP/1, or to who hung up."""
    # Anybody may send such bytes, and sglang-router asks each new worker whether it speaks gRPC on the same port.
    return not (record.exc_info and isinstance(record.exc_info[1], OF_CALLERS))


log.addFilter(is_a_fault_of_ours)
