"""The requests of one `Pool`, on connections that may be others' too; what they cost is counted for this one."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from rewardpool.client.asking import Asking, Body, OnEnd, Read
from rewardpool.client.effort import Effort
from rewardpool.client.recovery import Recovery
from rewardpool.client.report import Ledger
from rewardpool.client.retry import RetryableError
from rewardpool.client.transport import Connections
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import PoolError, SampleError

log = logging.getLogger(__name__)

T = TypeVar("T")


class UnderWay(Protocol):
    """Something that ends by a call."""

    def give_up(self) -> None:
        """Nobody wants it any more: it ends at once, with CancelledError."""

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """Those that may still run after that, for a moment."""


class Caller:
    """Sends requests and counts them."""

    def __init__(self, connections: Connections, ledger: Ledger) -> None:
        """`connections` have been entered, or are before the first request."""
        self._connections = connections
        self._ledger = ledger
        self._recovery = Recovery(connections, ledger)

    @property
    def endpoint(self) -> Endpoint:
        """Where the pool is now, and what it serves."""
        return self._connections.endpoint

    @property
    def concurrency(self) -> int:
        """Requests that may be in flight now, hedges not counted."""
        return self._connections.concurrency

    def begin(
        self, effort: Effort, path: str, body: Body, read: Read[T], on_end: OnEnd[T], *, samples: int = 1
    ) -> Asking[T]:
        """Send one request until it is answered; the arguments are those of `Asking`."""
        asking = Asking(
            self._connections,
            self._recovery,
            self._ledger,
            effort=effort,
            path=path,
            body=body,
            read=read,
            on_end=on_end,
            samples=samples,
        )
        asking.begin()
        return asking

    async def ask(self, effort: Effort, path: str, body: Body, read: Read[T]) -> T:
        """Send one request until it is answered, and wait for that.

        Raises:
            SampleError: There is no answer, and there will be none.
            PoolError: The pool cannot be used.
        """
        return await end_of(lambda on_end: self.begin(effort, path, body, read, on_end))

    async def ask_once(self, efforts: Sequence[Effort], path: str, body: dict[str, Any], read: Read[T]) -> T | None:
        """Send one request for several samples, once; None when it has no usable answer, whatever the reason.

        Args:
            efforts: Those of the samples.
            path: Of the request, below the pool's URL.
            body: The request.
            read: Makes of status, body and a label a result, a SampleError or a RetryableError.
        """
        label = f"{efforts[0].label} and {len(efforts) - 1} others"
        whole = Effort(label, seconds=max(effort.seconds for effort in efforts))

        def begin(on_end: OnEnd[T]) -> UnderWay:
            return self.begin(whole, path, lambda _: body, read, on_end, samples=len(efforts))

        try:
            return await end_of(begin)
        except (RetryableError, SampleError) as error:
            log.debug("sending %s alone: %s", whole.label, error)
            self._ledger.splits += 1
            return None
        finally:
            if whole.attempts:
                self._ledger.together += len(efforts)
            for effort in efforts:
                effort.attempts = whole.attempts
                effort.seconds = whole.seconds

    @property
    def queues(self) -> set[Callable[[float], None]]:
        """As `Connections.queues`."""
        return self._connections.queues

    def unanswered_seconds(self, *, since: float) -> float:
        """How much of the time since then (the loop's) the pool has answered nobody."""
        return self._connections.outage.unanswered_seconds(since=since)

    def expired(self, effort: Effort, *, queued_at: float) -> SampleError | PoolError:
        """As `Recovery.expired`."""
        return self._recovery.expired(effort, queued_at=queued_at)

    def given_up(self) -> None:
        """Count a sample that was sent and that nobody wants any more."""
        self._ledger.cancelled += 1


async def end_of(begin: Callable[[OnEnd[T]], UnderWay]) -> T:
    """Wait for something to end; when the task that waits is cancelled, it is given up first."""
    end: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def on_end(result: T | None, error: BaseException | None) -> None:
        if end.done():
            return
        if error is None:
            end.set_result(result)  # type: ignore[arg-type]  # no error: there is a result
        elif isinstance(error, asyncio.CancelledError):
            end.cancel()
        else:
            end.set_exception(error)

    under_way = begin(on_end)
    try:
        return await end
    except asyncio.CancelledError:
        await given_up([under_way])
        raise


async def given_up(all_under_way: Sequence[UnderWay]) -> None:
    """Give all of it up, and wait until nothing of it runs."""
    running: set[asyncio.Task[None]] = set()
    for under_way in all_under_way:
        running |= under_way.tasks
        under_way.give_up()
    await asyncio.gather(*running, return_exceptions=True)
