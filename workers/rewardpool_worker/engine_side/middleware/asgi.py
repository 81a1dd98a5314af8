"""Plain ASGI: what the middlewares and RewardPool's own server read and send."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rewardpool_worker.engine_side.middleware.errors import NoAnswerError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Result = TypeVar("Result")


class DisconnectedError(Exception):
    """The caller closed its connection."""


@dataclass(frozen=True)
class Answer:
    """A whole answer: HTTP status and body."""

    status: int
    body: bytes


class BufferedAnswer:
    """Collects the messages of one answer instead of sending them."""

    def __init__(self) -> None:
        self._status: int | None = None
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")

    def answer(self) -> Answer:
        if self._status is None:
            raise NoAnswerError("the engine ended the request without an answer")
        return Answer(self._status, bytes(self._body))


def header(message: MutableMapping[str, Any], name: bytes) -> bytes | None:
    """Return a header of a request's scope or of an answer's first message; None without one."""
    found: Iterable[bytes] = (value for key, value in message.get("headers", ()) if key.lower() == name)
    return next(iter(found), None)


def _kept_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    # The body is ours, so what described the caller's goes; request ids and trace contexts stay.
    replaced = (b"content-length", b"content-type", b"transfer-encoding", b"content-encoding")
    kept = [(name, value) for name, value in scope["headers"] if name not in replaced]
    return [*kept, (b"content-type", b"application/json")]


async def read_body(receive: Receive, limit_bytes: int) -> bytes | None:
    """Return the request's body; None when it is longer than the limit."""
    body = bytearray()
    too_long = False
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        chunk = message.get("body", b"")
        too_long = too_long or len(body) + len(chunk) > limit_bytes
        # The rest is read all the same: an answer in the middle of a body reads as a broken connection to the router,
        # which would try the sample on every other worker.
        if not too_long:
            body += chunk
        if not message.get("more_body"):
            break
    return None if too_long else bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body first and then what the connection gives, which is its end."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def never_disconnects() -> Message:
    """The `receive` of a caller who never disconnects."""
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}


async def send_json(send: Send, status: int, content: dict[str, Any]) -> None:
    """Answer with JSON."""
    await send_answer(send, Answer(status, json.dumps(content, allow_nan=False).encode()))


async def send_answer(send: Send, answer: Answer, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole answer of JSON, with further headers."""
    described = [(b"content-type", b"application/json"), (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": [*described, *headers]})
    await send({"type": "http.response.body", "body": answer.body})


async def call(
    app: App,
    scope: Scope,
    path: str,
    request: dict[str, Any] | None = None,
    receive: Receive | None = None,
    *,
    method: str | None = None,
    query: str = "",
) -> Answer:
    """Call an application within a request's scope, and return its whole answer; by GET, with `request` by POST.

    Raises:
        NoAnswerError: it ended without one, as it does when the caller disconnected.
    """
    body = b"" if request is None else json.dumps(request).encode()
    inner = {
        **scope,
        "method": method or ("GET" if request is None else "POST"),
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [*_kept_headers(scope), (b"content-length", str(len(body)).encode())],
    }
    # With the caller's `receive`, the engine learns of a caller who disconnects and stops computing.
    buffered = BufferedAnswer()
    await app(inner, replay(body, receive or never_disconnects), buffered.send)
    return buffered.answer()


async def unless_disconnected(work: Coroutine[Any, Any, Result], receive: Receive) -> Result:
    """Return the result of some work; cancel it when the caller disconnects.

    Raises:
        DisconnectedError: the caller disconnected first.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_until_disconnected(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise DisconnectedError
        return working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
