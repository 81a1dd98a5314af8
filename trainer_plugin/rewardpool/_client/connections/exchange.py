"""One request on its way to its answer, with which its sender is called."""

import asyncio
from typing import NamedTuple, Protocol

from rewardpool._client.connections.target import RequestTarget

# Headers included. A score has a hundred bytes, and a judgement some kilobytes.
MAX_ANSWER_BYTES = 4 << 20


class BrokenError(Exception):
    """The connection broke before the answer was whole."""


class HttpAnswer(NamedTuple):
    """An answer of the server; `retry_after` is the text of that header."""

    status: int
    body: bytes
    retry_after: str | None


class Carrier(Protocol):
    def begin(self, exchange: "Exchange") -> bool:
        """Send a request; False where the connection is closed."""

    def cancel(self) -> None:
        """The answer is not wanted any more."""

    def detach(self) -> None:
        """The request that it was made for is gone."""


class Exchange:
    """One request on its way to its answer; its result goes to `answered` or `failed`, of which one is called."""

    __slots__ = ("connecting", "connection", "is_over", "raw", "to")

    def __init__(self) -> None:
        self.is_over = False
        self.connecting: asyncio.Task[Carrier] | None = None
        self.connection: Carrier | None = None
        self.raw = b""
        self.to: RequestTarget

    @property
    def most_bytes(self) -> int:
        return MAX_ANSWER_BYTES

    def answered(self, answer: HttpAnswer) -> None:
        """An answer has come. It must not raise."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """No answer will come; it must not raise.

        Args:
            error: UnreachableError where the address cannot be reached, BrokenError where the connection broke,
                InvalidResponseError for an answer that is too large or compressed.
        """
        raise NotImplementedError

    def may_go_anew(self) -> bool:
        """Return whether it goes on a new connection: its kept one broke before an answer began."""
        return True

    def cancel(self) -> None:
        """The answer is not wanted any more: close its connection."""
        if self.is_over:
            return
        self.is_over = True
        if self.connecting is not None:
            self.connecting.cancel()
        if self.connection is not None:
            # An answer may be on its way, and the next request must not get it.
            self.connection.cancel()

    # What client and connections call.

    def connected(self, connecting: asyncio.Task[Carrier]) -> None:
        self.connecting = None
        if connecting.cancelled():
            return
        if (error := connecting.exception()) is not None:
            self.ends(error)
        elif self.is_over:
            connecting.result().detach()
        elif not connecting.result().begin(self):
            self.ends(BrokenError("the server closed it"))

    def ends(self, end: HttpAnswer | BaseException) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.connection, self.raw = None, b""
        if isinstance(end, HttpAnswer):
            self.answered(end)
        else:
            self.failed(end if isinstance(end, Exception) else BrokenError(repr(end)))
