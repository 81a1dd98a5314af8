"""One request, sent again until it is answered; further ones go beside a straggler.

    a slot is free -> attempt -> answer, of the first or of one beside it (`hedging.py`) -> the end, reported once
                              -> setback -> recover (`recovery.py`) -> attempt … until the deadline (`timers.py`)

Those beside it race on while it recovers: one may sit at a silent worker, and nobody waits for that. The deadline
counts from when the sample came, less the time in which it waited for a slot while others were answered: a pool that
answers nobody uses up the time of those that wait for a slot too.

Who asks gets the result by a call, not by a task that ends: the first attempt runs in the task of the whole, and when
one beside it is answered earlier it stays open for some seconds after that (`timers.py` says why), while the sample is
done.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rewardpool.client.effort import Effort
from rewardpool.client.hedging import MOST_HEDGES, Hedging
from rewardpool.client.recovery import Recovery
from rewardpool.client.report import Ledger
from rewardpool.client.retry import RetryableError
from rewardpool.client.transport import Connections
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import PoolError, SampleError

T = TypeVar("T")

Body = Callable[[Endpoint], dict[str, Any]]
"""Makes the request for an endpoint, or raises the SampleError that says why there is none."""
Read = Callable[[int, bytes, str], T]
"""Makes of status, body and the sample's label a result, a SampleError or a RetryableError."""
OnEnd = Callable[[T | None, BaseException | None], None]
"""Receives the result, or the error in its place; called once, and must not raise."""


class Asking(Generic[T]):
    """A request under way. For one use."""

    __slots__ = (
        "_began",
        "_body",
        "_connections",
        "_effort",
        "_ended",
        "_hedges",
        "_hedges_paid",
        "_hedges_sent",
        "_hedging",
        "_ledger",
        "_loop",
        "_on_end",
        "_overdue",
        "_path",
        "_queued_at",
        "_read",
        "_recovery",
        "_request",
        "_samples",
        "_sent",
        "_sent_last",
        "_task",
        "_watch",
    )

    def __init__(
        self,
        connections: Connections,
        recovery: Recovery,
        ledger: Ledger,
        *,
        effort: Effort,
        path: str,
        body: Body,
        read: Read[T],
        on_end: OnEnd[T],
        samples: int = 1,
    ) -> None:
        """Prepare; nothing is sent before `begin`.

        Args:
            connections: To the pool.
            recovery: What is done after a retryable error.
            ledger: Where attempts are counted.
            effort: Keeps count of what was done, also when there is no answer.
            path: Of the request, below the pool's URL.
            body: Makes the request.
            read: Reads the answer.
            on_end: Receives the result. The error in its place is a SampleError or a PoolError, CancelledError when
                nobody wants the result any more, or whatever went wrong in this program.
            samples: That are in the request; with more than one it is sent once, and a RetryableError ends it.
        """
        self._connections = connections
        self._recovery = recovery
        self._ledger = ledger
        self._effort = effort
        self._path = path
        self._body = body
        self._read = read
        self._on_end = on_end
        self._samples = samples
        self._hedging = connections.hedging(path)
        self._watch = connections.watch
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._sent: dict[asyncio.Task[None], float] = {}
        """When each of the requests was sent that are in flight now."""
        self._overdue: frozenset[asyncio.Task[None]] = frozenset()
        """Those of them that have used up their time."""
        self._hedges: frozenset[asyncio.Task[None]] = frozenset()
        self._hedges_sent = 0
        self._hedges_paid = 0
        """Beside the attempt of now; the second number is of those out of the budget."""
        self._sent_last = 0.0
        self._request: tuple[Endpoint, dict[str, Any]]
        """Where the attempt of now goes, and what it sends; from the first one on."""
        self._began = 0.0
        self._queued_at = 0.0

    def begin(self) -> None:
        """Send it as soon as there is a slot."""
        self._queued_at = self._loop.time()
        came = self._queued_at - self._effort.seconds
        self._connections.slots.take(self._start, came=came, expire=self._expire)

    def give_up(self) -> None:
        """Nobody wants the result any more: close what is in flight."""
        if self._ended:
            return
        if self._task is None:
            self._connections.slots.leave(self._start)
            self._ended = True
            self._on_end(None, asyncio.CancelledError())
        else:
            self._end(error=asyncio.CancelledError())

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """Those that may still run, also after `give_up`."""
        return {*self._hedges, *([self._task] if self._task else [])}

    # The course of it.

    def _start(self) -> None:
        # One that waited for its pool to open, or was sent with others before, has used up some of its time. Those that
        # were sent are counted.
        used = self._effort.seconds + self._connections.outage.unanswered_seconds(since=self._queued_at)
        self._began = self._loop.time() - used
        if self._effort.attempts == 0:
            self._ledger.samples += self._samples
        self._connections.following.glance()
        self._task = self._loop.create_task(self._run())
        self._watch.add(self)

    def _expire(self) -> None:
        """End it while it waits for a slot."""
        self._ended = True
        self._on_end(None, self._recovery.expired(self._effort, queued_at=self._queued_at, samples=self._samples))

    async def _run(self) -> None:
        try:
            result = await self._until_answered()
        except Exception as error:
            self._end(error=error)
        except BaseException as error:
            self._end(error=error)
            raise
        else:
            self._end(result)

    async def _until_answered(self) -> T:
        while True:
            endpoint = self._connections.endpoint
            self._request = (endpoint, self._body(endpoint))
            sent_at = self._loop.time()
            try:
                return await self._attempts()
            except RetryableError as setback:
                if self._ended:
                    raise
                if self._samples > 1:
                    await self._race_to_end()
                    raise
                try:
                    await self._recovery.after(self._effort, endpoint, setback, sent_at=sent_at)
                except SampleError:
                    await self._race_to_end()
                    raise

    async def _attempts(self) -> T:
        """One attempt, with others beside it where it is a straggler. Raises its RetryableError; the others race on."""
        self._hedges_sent = len(self._hedges)
        if not self._hedges:
            self._hedges_paid = 0
        if self._hedging is not None:
            self._hedging.sent()
            if self._effort.kind == "nonsense" and self._hedges_sent < MOST_HEDGES:
                # Outside the budget. Of two at a time an idle router gives its workers one each, where it gives the
                # same text to the same worker again and again.
                self._send_hedge()
        return await self._attempt()

    async def _race_to_end(self) -> None:
        """Give those beside the last attempt their chance: when one of them is answered, this task is cancelled."""
        while self._hedges:
            await asyncio.wait(self._hedges, return_when=asyncio.FIRST_COMPLETED)

    async def _attempt(self) -> T:
        """One request. Raises RetryableError where another may help, else SampleError."""
        task: asyncio.Task[Any] | None = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is sent from a task")
        endpoint, content = self._request
        self._effort.attempts += 1
        self._ledger.attempts += 1
        self._sent[task] = self._sent_last = sent_at = self._loop.time()
        try:
            answer = await self._connections.send(self._effort, endpoint, self._path, content)
        except asyncio.CancelledError:
            if task not in self._overdue or task.uncancel() > 0:
                raise
            self._overdue -= {task}
            self._connections.strained(sent_at=sent_at, now=self._loop.time())
            patience = self._connections.config.seconds_per_attempt
            raise RetryableError("worker", f"no answer within {patience:g} s") from None
        finally:
            self._sent.pop(task, None)
        try:
            result = self._read(answer.status, answer.body, self._effort.label)
        except RetryableError as setback:
            setback.retry_after = answer.retry_after
            if setback.kind == "busy":
                self._connections.strained(sent_at=sent_at, now=self._loop.time())
            raise
        except SampleError as error:
            if error.status is None:
                self._connections.heard()
            raise
        if not self._ended:
            self._answered(self._loop.time() - sent_at)
        return result

    def _answered(self, seconds: float) -> None:
        self._connections.answered(seconds)
        if self._hedging is not None:
            self._hedging.answered(seconds)

    # Beside a straggler.

    def look(self, now: float) -> float:
        """Send another request beside a straggler, close what has used up its time; returns when to look again."""
        config = self._connections.config
        deadline = self._began + config.timeout
        if now >= deadline:
            self._end(error=self._recovery.too_late(self._effort))
            return deadline
        for task, sent_at in self._sent.items():
            if now - sent_at >= config.seconds_per_attempt and task not in self._overdue:
                self._overdue |= {task}
                task.cancel()
        return min([deadline, self._look_for_straggler(now), *self._times_up()])

    def _times_up(self) -> list[float]:
        """When the requests in flight have used up their time."""
        patience = self._connections.config.seconds_per_attempt
        return [sent_at + patience for task, sent_at in self._sent.items() if task not in self._overdue]

    def _look_for_straggler(self, now: float) -> float:
        """Send a request beside one if it is one; returns when to look again."""
        soonest = self._connections.soonest_seconds
        if self._hedging is None or self._task is None or self._task not in self._sent:
            # In a pause between attempts; the next one may be a straggler in its turn.
            return now + soonest
        wait = soonest
        if self._hedges_sent < MOST_HEDGES:
            wait = self._hedging.wait(now - self._sent_last, beside=self._hedges_sent)
            if wait == 0:
                self._hedging.spend()
                self._hedges_paid += 1
                self._send_hedge()
                wait = self._hedging.wait(0.0, beside=self._hedges_sent)
        sent_at = self._sent[self._task]
        if not self._hedging.is_straggler(now - sent_at):
            return now + wait
        self._look_for_outage(self._hedging, sent_at=sent_at, now=now)
        return now + min(wait, soonest)

    def _look_for_outage(self, hedging: Hedging, *, sent_at: float, now: float) -> None:
        """Where nothing at all is answered, one of those that are held is sent anew, in its turn (`outage.py`)."""
        outage = self._connections.outage
        if outage.wants_canary(sent_at=sent_at, usual_seconds=hedging.usual_seconds, now=now):
            outage.canary_sent(self._send_hedge())

    def send_again(self, seconds: float) -> None:
        """The pool is back: send a request beside one that the router holds since before, after so many seconds."""
        self._loop.call_later(seconds, self._send_beside_one_held)

    def _send_beside_one_held(self) -> None:
        sent_at = None if self._ended or self._task is None else self._sent.get(self._task)
        if self._hedging and sent_at is not None and self._hedging.is_straggler(self._loop.time() - sent_at):
            self._send_hedge()

    def _send_hedge(self) -> asyncio.Task[None]:
        self._hedges_sent += 1
        hedge = self._loop.create_task(self._hedge())
        self._hedges |= {hedge}
        hedge.add_done_callback(self._hedge_is_over)
        return hedge

    async def _hedge(self) -> None:
        self._ledger.hedges += 1
        try:
            result = await self._attempt()
        except RetryableError:
            return  # the others have their chance still
        except Exception as error:
            self._hedge_won(error=error)
        else:
            self._hedge_won(result)

    def _hedge_is_over(self, hedge: asyncio.Task[None]) -> None:
        self._hedges -= {hedge}

    def _hedge_won(self, result: T | None = None, error: Exception | None = None) -> None:
        if self._ended:
            return
        self._ledger.hedges_won += 1
        if self._hedging is not None:
            self._hedging.won(self._hedges_paid)
        self._end(result, error)

    # The end.

    def _end(self, result: T | None = None, error: BaseException | None = None) -> None:
        """Tell who asked, and make room for the next. Only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self._effort.seconds = self._loop.time() - self._began
        if error is not None and self._samples == 1:
            error = self._recovery.of_pool(error)
            self._count(error)
        self._watch.remove(self)
        self._connections.slots.give_back()
        if self._sent or self._hedges or error is not None:
            self._close_others(leave_stragglers=not isinstance(error, asyncio.CancelledError))
        self._on_end(result, error)

    def _count(self, error: BaseException) -> None:
        if isinstance(error, PoolError):
            self._ledger.unscored += 1
        elif isinstance(error, asyncio.CancelledError):
            self._ledger.cancelled += 1

    def _close_others(self, *, leave_stragglers: bool) -> None:
        """Close what is still in flight; stragglers a little later, so that the router goes on to count them."""
        now, own = self._loop.time(), asyncio.current_task()
        for task in self.tasks:
            if task is own or task.done():
                continue
            sent_at = self._sent.get(task)
            if (
                leave_stragglers
                and sent_at is not None
                and self._hedging is not None
                and self._hedging.is_straggler(now - sent_at)
            ):
                self._watch.leave_open(task)
            else:
                task.cancel()
