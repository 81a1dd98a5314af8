"""One attempt of a request: the exchange that the connection calls, which hands on what came to its request."""

import asyncio
from typing import TYPE_CHECKING, Any

from rewardpool.client.http import Answer, Exchange
from rewardpool.client.retry import RetryableError
from rewardpool.client.transport import unanswered
from rewardpool.discovery.endpoint import Endpoint

if TYPE_CHECKING:
    from rewardpool.client.request import ScoreRequest


class Attempt(Exchange):
    """One that is on its way to the pool."""

    __slots__ = ("endpoint", "key", "request", "sent_at")

    def __init__(self, request: "ScoreRequest[Any]", endpoint: Endpoint) -> None:
        """It is sent now; made on the running event loop."""
        super().__init__()
        self.request = request
        self.endpoint = endpoint
        """Where it goes."""
        self.key: str | None = None
        """With which it goes there."""
        self.sent_at = asyncio.get_running_loop().time()
        """The loop's time."""

    def answered(self, answer: Answer) -> None:
        """See `Exchange`."""
        self.request.attempt_answered(self, answer)

    def failed(self, error: Exception) -> None:
        """See `Exchange`."""
        self.request.attempt_ended(self, error=unanswered(error, self.endpoint))

    def give_up(self, error: RetryableError) -> None:
        """Close it, since that is the matter with it."""
        super().cancel()
        self.request.attempt_ended(self, error=error)

    def cancel(self) -> None:
        """Close it: nobody wants its answer any more."""
        if not self.is_over:
            super().cancel()
            self.request.attempt_ended(self, error=asyncio.CancelledError())
