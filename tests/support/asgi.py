"""Asks an ASGI application one request, without a server or a socket."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    """A whole answer: HTTP status, headers and body."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def ask(app: Any, method: str, path: str, content: Any = None, *, key: str | None = None, **named: str) -> Reply:
    """Send one request; `content` is the raw body, or an object to send as JSON, `named` are further headers."""
    body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if key is not None:
        headers.append((b"authorization", f"Bearer {key}".encode()))
    headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": headers}
    # In two pieces, as a server may give it.
    pieces = [{"type": "http.request", "body": body[:7], "more_body": True}]
    pieces += [{"type": "http.request", "body": body[7:], "more_body": False}]
    reply = Reply()

    async def receive() -> dict[str, Any]:
        return pieces.pop(0) if pieces else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            reply.body += message.get("body", b"")

    await app(scope, receive, send)
    return reply
