"""One attempt of a request: the exchange that the connection calls, which passes the answer on to its request."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rewardpool.client.exchange import Answer, Exchange
from rewardpool.client.retry import RetryableError, retry_after_seconds, unanswered
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import SampleError

if TYPE_CHECKING:
    from rewardpool.client.request import ScoreRequest


def loop_time() -> float:
    """Return the time of the running event loop, in seconds: the clock of all attempts."""
    return asyncio.get_running_loop().time()


class Attempt(Exchange):
    """One attempt that is on its way to the pool."""

    __slots__ = ("endpoint", "key", "request", "sent_at", "waited")

    def __init__(self, request: "ScoreRequest[Any]", endpoint: Endpoint) -> None:
        """Create an attempt, timestamped now, on the running event loop."""
        super().__init__()
        self.request = request
        self.endpoint = endpoint
        self.key: str | None = None
        self.sent_at = loop_time()
        """The loop's time."""
        self.waited = 0.0
        """Seconds for a place at a worker, as far as that is known."""

    @property
    def most_bytes(self) -> int:
        return self.request.most_answer_bytes

    def answered(self, answer: Answer) -> None:
        request = self.request
        connections = request.connections
        connections.answered_with(self, answer.status)
        try:
            result = request.read(answer.status, answer.body)
        except RetryableError as error:
            error.retry_after = retry_after_seconds(answer.retry_after, now=datetime.now(UTC))
            if error.kind == "busy":
                connections.overloaded(sent_at=self.sent_at, now=loop_time())
            request.attempt_ended(self, error=error.with_traceback(None))  # its frames have the request, which has it
        except SampleError as error:
            if error.status is None:
                connections.pool_answered()
            request.attempt_ended(self, error=error.with_traceback(None))
        except Exception as error:  # a mistake in what reads it is the request's end, not the connection's
            request.attempt_ended(self, error=error)
        else:
            if not request.has_ended:
                seconds = loop_time() - self.sent_at
                connections.answered(seconds)
                if (hedging := connections.hedging(request.path)) is not None:
                    hedging.answered(seconds)
                request.spent_until_answer(self, result)
            request.attempt_ended(self, result)

    def failed(self, error: Exception) -> None:
        self.request.attempt_ended(self, error=unanswered(error, self.endpoint))

    def may_go_anew(self) -> bool:
        """Return whether to send it on a new connection; a worker may have begun: one more generation."""
        if not self.request.may_hedge:
            return False
        self.request.generations += 1
        return True

    def give_up(self, error: BaseException) -> None:
        """Close it: the request receives that error for it."""
        if not self.is_over:
            super().cancel()
            self.request.attempt_ended(self, error=error)

    def cancel(self) -> None:
        """Close it: its answer is not wanted any more."""
        self.give_up(asyncio.CancelledError())
