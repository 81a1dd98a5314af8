"""One request, from the queue to its end: sent again until it is answered.

    queued -> a slot is free -> attempt -> answered, it or a hedge beside it (`hedging.py`) -> the end, once
                                        -> RetryableError -> pause (`retry.py`) -> attempt … until the deadline

Hedges race on while it pauses: one may sit at a silent worker, and nobody waits for that. The deadline counts from when
the sample came, less the time in which it waited for a slot while others were answered, and for a place at a worker. A
pool that answers nobody uses up the time of those that wait for a slot too. An attempt lasts until then: a worker that
works is not given up, and whether one does it says itself (`in_work.py`).

Nothing of it runs in a task: an attempt is called with its answer by the connection, the pause before a further one is
a timer, and the request's end calls whoever asked. When a hedge is answered earlier than the first attempt, that one
stays open for some seconds (`request_timer.py` says why), while the sample is done. A request that waits is nothing but
its fields, for tens of thousands may wait.
"""

import asyncio
import itertools
import os
import uuid
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from rewardpool.client.attempt import Attempt, loop_time
from rewardpool.client.exchange import MAX_ANSWER_BYTES
from rewardpool.client.hedging import MOST_HEDGES, Hedging, Race
from rewardpool.client.report import Counters
from rewardpool.client.retry import (
    Kind,
    Refusals,
    Retry,
    RetryableError,
    cause,
    deadline_error,
    final_error,
)
from rewardpool.client.tracing import trace_headers
from rewardpool.client.transport import Connections, to_json
from rewardpool.deadline import already_waited
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import PoolError, SampleError
from rewardpool.score_waits import Part
from rewardpool_api.contract import ECHOING_PATHS, Echo, Fault, Worker

T = TypeVar("T")

CLOCK_SECONDS = 1.0
"""Seconds between two questions how long a request that has used up half of its deadline waited for a place."""

_NUMBERS = itertools.count(1)
"""Numbers that, with the process, name a request; a random number for each would cost more."""
_process = ""


def _name_process() -> None:
    """Name this process, which may have been forked."""
    global _process
    _process = f"{uuid.uuid4().hex}-{os.getpid()}-"


_name_process()
os.register_at_fork(after_in_child=_name_process)


class Queue(Protocol):
    """Queue in which a request waits."""

    def leave(self, request: "ScoreRequest[Any]") -> None:
        """Remove a request that has ended."""


@dataclass(slots=True, eq=False, repr=False)
class ScoreRequest(Generic[T]):
    """Request for one sample, for a judgement, or for several samples at once. For one use.

    What is asked and how the answer is read, subclasses say: a field for each would be two more objects that wait.
    """

    connections: Connections
    counters: Counters
    _: KW_ONLY
    label: str
    path: str
    """Below the pool's URL."""
    samples: int = 1
    """Samples in it; with more than one it is sent once, and a RetryableError ends it."""
    max_generations: int | None = None
    """Most attempts at a worker, hedges included, where each may cost a generation; None: by `max_attempts`."""

    seconds: float = field(default_factory=already_waited)
    """Seconds from its first attempt's due time to its end; before that, those of its deadline that were used up."""
    attempts: int = field(default=0, init=False)
    """Sent so far, hedges among them."""
    generations: int = field(default=0, init=False)
    """Attempts that may have reached a worker."""
    retries: int = field(default=0, init=False)
    """Attempts that failed and were worth another one."""
    refusals: "Refusals | None" = field(default=None, init=False)
    """Answers by workers of another revision than the one that may answer."""
    failed_at: float | None = field(default=None, init=False)
    """Time at which the latest failed attempt was sent (the loop's time)."""
    overtaken: int = field(default=0, init=False)
    """Retries since or during which the pool answered another request."""
    failures: float = field(default=0.0, init=False)
    """Failed attempts at a worker, the only ones that are bounded by number; see `FAILURES` in `retry`."""
    kind: Kind | None = field(default=None, init=False)
    problem: str = field(default="", init=False)
    """The last RetryableError, in words."""
    fault: Fault = field(default="infra", init=False)
    refused_keys: frozenset[str | None] = field(default=frozenset(), init=False)
    """Since all of them were tried last."""
    last_sent_at: float = field(default=0.0, init=False)
    """Time at which the latest attempt was sent (the loop's time)."""
    trace: str = field(default_factory=trace_headers, init=False)
    """Header lines by which the caller's trace goes on."""
    is_counted: bool = field(default=False, init=False)
    """True if its samples are in the report, since an attempt was due."""
    has_ended: bool = field(default=False, init=False)

    _number: int = field(default_factory=_NUMBERS.__next__, init=False)
    _queue: Queue | None = field(default=None, init=False)
    _queued_at: float = field(default=0.0, init=False)
    _spent_until: float = field(default=0.0, init=False)
    """End of the time that is accounted for in `Counters.waits` (the loop's time)."""
    _began: float | None = field(default=None, init=False)
    """Time at which its first attempt was due (the loop's time), earlier by what it had used up of its deadline."""
    _endpoint: Endpoint | None = field(default=None, init=False)
    """Endpoint of the present attempt; None before the first one."""
    _body: bytes = field(default=b"", init=False)
    """Body for that endpoint, encoded once for each."""
    _primary: Attempt | None = field(default=None, init=False)
    """The present attempt, hedges aside; None in a pause."""
    _retry: Retry | None = field(default=None, init=False)
    """Pause and look-up before the next attempt, from the end of the last one on."""
    _given_up: RetryableError | SampleError | None = field(default=None, init=False)
    """Reason for which no further attempt is made; hedges in flight may still succeed."""
    _race: "Race[T] | None" = field(default=None, init=False)
    _callbacks: "tuple[Callable[[ScoreRequest[T]], None], ...]" = field(default=(), init=False)
    _answer: T = field(init=False)
    _error: BaseException | None = field(default=None, init=False)

    def content(self, endpoint: Endpoint) -> dict[str, Any]:
        """The JSON for an endpoint. Pure.

        Raises:
            SampleError: There is none.
        """
        raise NotImplementedError

    def read(self, status: int, body: bytes) -> T:
        """Return the result in an answer. Pure.

        Raises:
            SampleError: No answer will come.
            RetryableError: That there is none yet.
        """
        raise NotImplementedError

    def worker_of(self, answer: T) -> Worker:
        """Return who answered."""
        return Worker()

    @property
    def id(self) -> str:
        """Name of the request on the wire, the same for all attempts; answers repeat it."""
        return f"{_process}{self._number}"

    @property
    def attempt_id(self) -> str:
        """Name of the attempt that is sent now, for the logs of router and worker."""
        return f"{self.id}-{self.attempts}"

    @property
    def echo(self) -> Echo:
        """Fields that an answer must repeat.

        A pool that was found by its object is RewardPool's, and its workers say whose their answers are. Behind a bare
        URL may be any server; an answer to another request is refused there too.
        """
        is_ours = self.connections.endpoint.source is not None and self.path in ECHOING_PATHS
        return Echo(self.id, is_ours, self.tokenizer, self.revision)

    @property
    def revision(self) -> str | None:
        """The one revision that may answer; None where any may."""
        return None

    @property
    def tokenizer(self) -> str | None:
        """Digest of the tokenizer that wrote what is asked; None where any model may answer."""
        return None

    @property
    def most_answer_bytes(self) -> int:
        """Maximum size of an answer with its headers."""
        return MAX_ANSWER_BYTES

    def result(self) -> T:
        """The answer of a request that has ended.

        Raises:
            SampleError: There is none, and there will be none.
            PoolError: The pool cannot be used.
            CancelledError: It was cancelled.
        """
        if self._error is not None:
            raise self._error
        return self._answer

    @property
    def error(self) -> BaseException | None:
        """Its final error; None before its end, or with an answer."""
        return self._error

    @property
    def is_score(self) -> bool:
        """True if an answer proves that the pool scores."""
        return True

    @property
    def is_answered(self) -> bool:
        """True if it has ended with an answer."""
        return self.has_ended and self._error is None

    @property
    def may_hedge(self) -> bool:
        """True if one more generation may be requested beside the others."""
        return self.max_generations is None or self.generations < self.max_generations

    @property
    def has_failed_for_good(self) -> bool:
        """True if a further failure at a worker is the last one."""
        if self.max_generations is not None:
            return self.generations >= self.max_generations
        return self.failures >= self.connections.config.max_attempts

    def add_done_callback(self, callback: "Callable[[ScoreRequest[T]], None]") -> None:
        """Register a callback for the end, once; it must not raise."""
        self._callbacks += (callback,)

    async def wait(self) -> None:
        """Return when it has ended; when the task that waits is cancelled, so is the request."""
        if self.has_ended:
            return
        ended = asyncio.get_running_loop().create_future()
        self.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        try:
            await ended
        except asyncio.CancelledError:
            await asyncio.gather(*self.cancel(), return_exceptions=True)
            raise

    def cancel(self) -> set[asyncio.Task[Any]]:
        """Cancel it: close what is in flight; returns what runs on for a moment."""
        running: set[asyncio.Task[Any]] = set()
        if not self.has_ended:
            running.update(one.connecting for one in self._in_flight() if one.connecting is not None)
        self.finish(error=asyncio.CancelledError())
        return running

    # In the queue.

    def send(self) -> None:
        """Send it as soon as there is a slot; it never ends within this call."""
        self.wait_in(self.connections.slots)
        self.connections.slots.take(self)

    def wait_in(self, queue: Queue) -> None:
        """Wait from now on."""
        self._queue = queue
        self._queued_at = self._spent_until = loop_time()

    def leave_queue(self) -> None:
        """End the wait: the time in which the pool gave no answer is used up."""
        self._queue = None
        self._spent("queueing")
        self.seconds += self.connections.outage.unanswered_seconds(since=self._queued_at)

    @property
    def waiting_since(self) -> float:
        """Start of its wait for a pool that gives no answer (the loop's time), earlier by what it had used up."""
        return max(self._queued_at, self.connections.outage.answered_at) - self.seconds

    def expire(self) -> None:
        """End it while it waits: its deadline is over."""
        self.leave_queue()
        self._count_samples()
        self.finish(error=deadline_error(self))

    def _spent(self, part: Part, *, until: float | None = None) -> None:
        """Account for the time since the last call, until then or until now."""
        if (waits := self.counters.waits) is None:
            return
        until = loop_time() if until is None else until
        if until > self._spent_until:
            waits.spent(part, self._spent_until, until, samples=self.samples)
            self._spent_until = until

    def _spent_in_vain(self, error: BaseException | None) -> None:
        """Account for the time of an attempt without an answer, and of the pause after it."""
        failed = self.retries or isinstance(error, RetryableError)
        self._spent("cold_starts" if self.kind == "waiting" else "retries" if failed else "serving")

    def spent_until_answer(self, attempt: Attempt, answer: T) -> None:
        """Account for the time of an attempt that is answered now; of a hedge, for the time before it too."""
        if self.counters.waits is None:
            return
        if attempt is not self._primary:
            self._spent("retries", until=attempt.sent_at)
        now, worker = loop_time(), self.worker_of(answer)
        began = now - worker.seconds if worker.seconds is not None else self._spent_until
        if worker.ready_seconds is not None:  # a router may have held it until there was a worker
            first = self.counters.readiness.answered(now, now - worker.ready_seconds, since=self._spent_until)
            self._spent("cold_starts", until=min(began, first))
        self._spent("queueing", until=began)
        self._spent("serving", until=now)

    # Under way.

    def start(self) -> None:
        """Begin with the first attempt: there is a slot."""
        self.leave_queue()
        self._began = loop_time() - self.seconds
        self._count_samples()
        self.connections.resolver.refresh_when_due()
        self.connections.timer.add(self, seconds_left=self.connections.config.timeout - self.seconds)
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        """Send it, with hedges where it is slow; those of the attempts before race on."""
        try:
            self._encode(self.connections.endpoint)
            if (hedging := self.connections.hedging(self.path)) is not None:
                hedging.sent()
                if self._race is not None:
                    self._race.next_attempt()
                if (beside := self._beside_retry()) > 0:
                    self._racing(hedging).send_beside(beside)
            self._primary = self._sent()
        except Exception as error:
            # Whoever began it may not know of it yet.
            asyncio.get_running_loop().call_soon(self.finish, None, error)

    def _beside_retry(self) -> int:
        """Return how many are sent beside a further attempt from the start, so that it comes to other workers too."""
        match self.kind:
            case "invalid_response":
                return int(self.max_generations is None)
            case "other_revision" if self.refusals is not None:  # those that are refused cost nothing
                most = MOST_HEDGES if self.max_generations is None else self.max_generations - self.generations - 1
                return min(most, self.refusals.count)
        return 0

    def _encode(self, endpoint: Endpoint) -> None:
        if self._endpoint is not endpoint:
            self._body = to_json(self.content(endpoint))
            self._endpoint = endpoint

    def _sent(self) -> Attempt:
        """Return an attempt that was sent."""
        attempt = Attempt(self, self._endpoint)  # type: ignore[arg-type]  # its body is encoded for one
        self.attempts += 1
        self.generations += 1
        self.counters.attempts += 1
        self.last_sent_at = attempt.sent_at
        self.connections.send(attempt, self._body)
        return attempt

    def attempt_ended(self, attempt: Attempt, answer: T | None = None, error: BaseException | None = None) -> None:
        """An attempt came to its end: an answer, or an error, a RetryableError where another attempt may help."""
        if attempt is not self._primary:
            if self._race is not None:
                self._race.ended(attempt, answer, error)
            return
        self._primary = None
        if self.has_ended:
            return
        if not isinstance(error, RetryableError):
            self.finish(answer, error)
        elif self.samples > 1:
            self.give_up(error)
        else:
            self._retry = Retry(self, error, attempt.endpoint, attempt.sent_at)
            self._retry.begin()

    def attempt_again(self) -> None:
        """The pause is over."""
        self._retry = None
        self._spent_in_vain(None)
        if not self.has_ended:
            self._begin_attempt()

    def give_up(self, error: RetryableError | SampleError) -> None:
        """Make no further attempt."""
        self._given_up = error
        self.hedge_failed()

    def refused(self, *, beside: bool = False) -> Refusals:
        """Count an answer of a worker of another revision, to a hedge or not; return all that are counted."""
        if self.refusals is None:
            self.refusals = Refusals(loop_time())
        self.refusals.attempts += not beside
        self.refusals.beside += beside
        return self.refusals

    @property
    def failed_beside(self) -> RetryableError | None:
        """Failure at a worker of a hedge beside the attempt that ended last."""
        return None if self._race is None else self._race.failed_at_worker

    def hedge_failed(self) -> None:
        """A hedge came to nothing: if it was the last hope, so did the request."""
        if self._given_up is not None and not (self._race is not None and self._race.hedges):
            self.finish(error=self._given_up)

    # While it is slow.

    def look(self, now: float) -> float:
        """Do what is due: close what is overdue, send a hedge; returns when to look again."""
        timeout = self.connections.config.timeout
        often = min(CLOCK_SECONDS, timeout / 8)
        if self._primary is not None and now >= (self._began or now) + timeout / 2:
            self.connections.in_work.refresh(now, older_than=often)
            self._look_at_clock(self._primary)
        deadline = (self._began or now) + timeout
        if now >= deadline:
            self.finish(error=deadline_error(self))
            return deadline
        due = [deadline, max(deadline - timeout / 2, now + often)]
        hedging = self.connections.hedging(self.path)
        due.append(now + (self._racing(hedging).look(now) if hedging is not None else self.connections.soonest_seconds))
        return min(due)

    def _look_at_clock(self, attempt: Attempt) -> None:
        """Subtract its wait for a place at a worker from what it has used up of its deadline."""
        if (said := self.connections.in_work.worked_seconds(self.id)) is None:
            return
        worked, asked_at = said
        if (more := asked_at - attempt.sent_at - worked - attempt.waited) > 0:
            attempt.waited += more
            self._began = (self._began or 0.0) + more

    def send_again(self, seconds: float) -> None:
        """The pool is back: send a hedge if the router holds this since before, after so many seconds."""
        if (hedging := self.connections.hedging(self.path)) is not None:
            asyncio.get_running_loop().call_later(seconds, self._send_if_held, hedging)

    def _send_if_held(self, hedging: Hedging) -> None:
        if not self.has_ended:
            self._racing(hedging).send_if_held(loop_time())

    def _racing(self, hedging: Hedging) -> Race[T]:
        if self._race is None:
            self._race = Race(self, hedging)
        return self._race

    @property
    def primary_sent_at(self) -> float | None:
        """Time at which the present attempt was sent, hedges aside (the loop's time); None while there is none."""
        return None if self._primary is None or self.has_ended else self._primary.sent_at

    def send_hedge(self) -> Attempt:
        """Send one more beside the attempt of now."""
        self.counters.hedges += 1
        return self._sent()

    def _in_flight(self) -> list[Attempt]:
        """Attempts that are neither answered nor closed."""
        hedges = self._race.hedges if self._race is not None else ()
        return [one for one in (self._primary, *hedges) if one is not None]

    # The end.

    def finish(self, answer: T | None = None, error: BaseException | None = None) -> None:
        """Notify the caller, and make room for the next. Only the first call counts."""
        if self.has_ended:
            return
        self.has_ended = True
        if self._began is not None:
            self.seconds = loop_time() - self._began
            if error is not None:
                self._spent_in_vain(error)
        if error is None:
            self._answer = answer  # type: ignore[assignment]  # no error: there is an answer
            if self.is_score:
                self.connections.breaker.scored()
        else:
            if self.samples == 1:
                if (caused := cause(error)) is not None:
                    self.counters.failed(*caused)
                error = final_error(self, error)
            self._error = error
        self._count_end()
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.leave(self)
        elif self._began is not None:
            self.connections.timer.remove(self)
            self._close_attempts()  # first: whoever gets the place sends at once
            self.connections.slots.give_back()
        self.tell()

    def tell(self) -> None:
        """Notify the caller that it has ended."""
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)

    def _count_samples(self) -> None:
        if not self.is_counted:
            self.is_counted = True
            self.counters.samples += self.samples

    def _count_end(self) -> None:
        if self.samples > 1:
            return  # each of them is counted
        match self._error:
            case None:
                self.counters.score(self.seconds)
            case PoolError():
                self.counters.unscored += 1
            case asyncio.CancelledError() if self.is_counted:
                self.counters.cancelled += 1

    def _close_attempts(self) -> None:
        """Close what is in flight; stragglers a little later, so that the router goes on to count them."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None  # it has the error, whose frames have this request
        hedging = None if isinstance(self._error, asyncio.CancelledError) else self.connections.hedging(self.path)
        now = loop_time()
        for attempt in self._in_flight():
            if hedging is not None and hedging.is_straggler(now - attempt.sent_at):
                self.connections.timer.leave_open(attempt)
            else:
                attempt.cancel()
        self._race = None  # it has this request; what is left open has no say any more
