"""Destination of requests, and the bytes that begin each of them: built once for a URL and a key."""

import ssl
from functools import lru_cache
from importlib.metadata import version
from typing import NamedTuple

from yarl import URL

from rewardpool._client.connections.connect import Origin


class RequestTarget(NamedTuple):
    """Destination of requests: the identity of a connection, and the beginning of every request on it."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    """None for plain HTTP."""
    # The listener must belong to this user, or to root.
    is_own: bool
    # The request line, and the headers that all requests have.
    head: bytes

    @property
    def origin(self) -> Origin:
        """Requests to the same one share connections."""
        return self[:4]


@lru_cache(maxsize=64)
def target(
    url: str, *, key: str | None, tls: ssl.SSLContext | None, is_own: bool = False, method: str = "POST"
) -> RequestTarget:
    """Return the target of requests with JSON to a URL, with a bearer `key` if there is one; `tls` verifies https.

    Where `is_own`, nothing is sent unless who listens there is this user, or root.

    Raises:
        ValueError: The key has a character that no header may have.
    """
    parsed = URL(url)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ValueError("the pool's key has a character in it that no HTTP header may have, such as a line's end")
    lines = [
        f"{method} {parsed.raw_path_qs} HTTP/1.1",
        f"Host: {parsed.host_port_subcomponent}",
        f"User-Agent: {_user_agent()}",
        "Accept: */*",
        "Content-Type: application/json",
        *([f"Authorization: Bearer {key}"] if key is not None else []),
    ]
    secure = (tls or _default_context()) if parsed.scheme == "https" else None
    return RequestTarget(
        parsed.raw_host or "", parsed.port or 80, secure, is_own, "".join(f"{line}\r\n" for line in lines).encode()
    )


@lru_cache(maxsize=1)
def _default_context() -> ssl.SSLContext:
    return ssl.create_default_context()


@lru_cache(maxsize=1)
def _user_agent() -> str:
    return f"rewardpool/{version('rewardpool')}"
