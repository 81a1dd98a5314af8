"""One request, from the queue to its end: sent again until it is answered.

    queued -> a slot is free -> attempt -> answered, it or a hedge beside it (`rules/`) -> the end, once
                                        -> RetryableError -> pause (`rules/`) -> attempt … until the deadline

The rules are in those modules, and this one runs them.

Hedges race on while it pauses: one may sit at a silent worker, and nobody waits for that. The deadline counts from when
the sample came, less the time in which it waited for a slot while others were answered, and for a place at a worker. A
pool that answers nobody uses up the time of those that wait for a slot too. An attempt lasts until then: a worker that
works is not given up, and whether one does it says itself (`rules/in_work.py`).

Nothing of it runs in a task: an attempt is called with its answer by the connection, the pause before a further one is
a timer, and the request's end calls whoever asked. When a hedge is answered earlier than the first attempt, that one
stays open for some seconds (`request_timer.py` says why), while the sample is done. A request that waits is nothing but
its fields, for tens of thousands may wait.
"""

import asyncio
import itertools
import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from rewardpool._client.connections.exchange import MAX_ANSWER_BYTES, Exchange, HttpAnswer
from rewardpool._client.report import Counters
from rewardpool._client.rules.hedging import Hedging, Race, beside_retry
from rewardpool._client.rules.limiter import Queue
from rewardpool._client.rules.retry import (
    AnotherRevisionError,
    RetryableError,
    Tries,
    cause,
    deadline_error,
    end_after_look_up,
    end_of_tries,
    kind_of_status,
    look_up_since,
    next_pause,
    retry_after_seconds,
    unanswered,
    where,
)
from rewardpool._client.tracing import trace_headers
from rewardpool._client.transport import Connections, to_json
from rewardpool._deadline import already_waited
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._score_waits import Part
from rewardpool.errors import PoolError, SampleError
from rewardpool_api.contract import ECHOING_PATHS, REQUEST_ID_HEADER, AnsweringWorker, Echo, request_header

log = logging.getLogger(__name__)

T = TypeVar("T")

# Between two log lines about retries, at least.
LOG_SECONDS = 10.0
# Between two checks of a request that is in work.
MOST_RECHECK_SECONDS = 15.0
# Between two questions how long a request that has used up half of its deadline waited for a place.
CLOCK_SECONDS = 1.0

# With the process they number a request; a random number for each would cost more.
_NUMBERS = itertools.count(1)
_process = ""


def _name_process() -> None:
    """Name this process, which may have been forked."""
    global _process
    _process = f"{uuid.uuid4().hex}-{os.getpid()}-"


_name_process()
os.register_at_fork(after_in_child=_name_process)


def loop_time() -> float:
    """Return the time of the running event loop, in seconds: the clock of all attempts."""
    return asyncio.get_running_loop().time()


class Attempt(Exchange):
    """One attempt on its way to the pool, which passes the answer on to its request."""

    __slots__ = ("endpoint", "key", "request", "sent_at", "waited")

    def __init__(self, request: "ScoreRequest[Any]", endpoint: Endpoint) -> None:
        super().__init__()
        self.request = request
        self.endpoint = endpoint
        self.key: str | None = None
        self.sent_at = loop_time()
        self.waited = 0.0
        """Seconds for a place at a worker, as far as that is known."""

    @property
    def most_bytes(self) -> int:
        return self.request.most_answer_bytes

    def answered(self, answer: HttpAnswer) -> None:
        self.request.attempt_answered(self, answer)

    def failed(self, error: Exception) -> None:
        self.request.attempt_ended(self, error=unanswered(error, self.endpoint))

    def may_go_anew(self) -> bool:
        """Return whether to send it on a new connection; a worker may have begun: one more generation."""
        if not self.request.may_hedge:
            return False
        self.request.generations += 1
        return True

    def cancel(self) -> None:
        if not self.is_over:
            super().cancel()
            self.request.attempt_ended(self, error=asyncio.CancelledError())


@dataclass(slots=True, eq=False)
class _Retry:
    """Step between a failed attempt and the next one."""

    error: RetryableError
    sent_at: float
    """By the loop's clock."""
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False, repr=False)
class ScoreRequest(Tries, Generic[T]):
    """Request for one sample, for a judgement, or for several samples at once. For one use."""

    # Methods of subclasses, and no fields, make the body and read the answer: thousands of requests wait.

    connections: Connections
    counters: Counters
    _: KW_ONLY
    # Below the pool's URL.
    path: str
    # With more than one it is sent once, and a RetryableError ends it.
    samples: int = 1
    # Slots that it takes of `concurrency`.
    weight: int = 1
    seconds: float = field(default_factory=already_waited)
    """From its first attempt's due time to its end; before that, those of its deadline that were used up."""
    last_sent_at: float = field(default=0.0, init=False)
    """By the loop's clock."""
    # Header lines by which the caller's trace goes on.
    trace: str = field(default_factory=trace_headers, init=False)
    # Whether its samples are in the report, since an attempt was due.
    is_counted: bool = field(default=False, init=False)
    has_ended: bool = field(default=False, init=False)

    _number: int = field(default_factory=_NUMBERS.__next__, init=False)
    _queue: Queue[Any] | None = field(default=None, init=False)
    _queued_at: float = field(default=0.0, init=False)
    # End of the time that is accounted for in `Counters.waits`.
    _spent_until: float = field(default=0.0, init=False)
    # When its first attempt was due, earlier by what it had used up of its deadline.
    _began: float | None = field(default=None, init=False)
    _endpoint: Endpoint | None = field(default=None, init=False)
    # Encoded once for each endpoint.
    _body: bytes = field(default=b"", init=False)
    _primary: Attempt | None = field(default=None, init=False)
    """Hedges aside; None in a pause."""
    # Set from the end of an attempt until the next one is sent.
    _retry: _Retry | None = field(default=None, init=False)
    # Error of a request that is not retried any more; hedges in flight may still succeed.
    _given_up: RetryableError | SampleError | None = field(default=None, init=False)
    _race: Race | None = field(default=None, init=False)
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

    def worker_of(self, answer: T) -> AnsweringWorker:
        return AnsweringWorker()

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
        """Fields that an answer must repeat."""
        # Workers of a pool that was found by its object name the request that they answer. Behind a bare URL may be any
        # server; an answer to another request is refused there too.
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
    def tokens(self) -> int | None:
        """Tokens of what is asked; None where only the engine knows."""
        return None

    @property
    def most_answer_bytes(self) -> int:
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
        return self.has_ended and self._error is None

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
        self.connections.slots.acquire(self)

    def wait_in(self, queue: Queue[Any]) -> None:
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
        self.leave_queue()
        self._count_samples()
        self._deadline_passed()

    def _deadline_passed(self) -> None:
        connections, said = self.connections, self.connections.in_work.worked_seconds(self.id)
        error = deadline_error(
            self,
            connections.endpoint,
            timeout=connections.config.timeout,
            worked=None if said is None else said[0],
            not_ready=connections.resolver.not_ready,
        )
        self.finish(error=error)

    def _spent(self, part: Part, *, until: float | None = None) -> None:
        """Account for the time since the last call, until then or until now."""
        if (waits := self.counters.waits) is None:
            return
        until = loop_time() if until is None else until
        if until > self._spent_until:
            waits.spent(part, self._spent_until, until, samples=self.samples)
            self._spent_until = until

    def _spent_in_vain(self, error: BaseException | None) -> None:
        failed = self.retries or isinstance(error, RetryableError)
        self._spent("cold_starts" if self.kind == "waiting" else "retries" if failed else "serving")

    def _spent_until_answer(self, attempt: Attempt, answer: T) -> None:
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
        self.leave_queue()
        self._began = loop_time() - self.seconds
        self._count_samples()
        self.counters.tokens_sent(self.tokens)
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
                if (beside := beside_retry(self)) > 0:
                    race = self._racing()
                    for _ in range(min(beside, race.room)):
                        self._send_hedge(race)
            self._primary = self._sent()
        except Exception as error:
            # Whoever began it may not know of it yet.
            asyncio.get_running_loop().call_soon(self.finish, None, error)

    def _encode(self, endpoint: Endpoint) -> None:
        if self._endpoint is not endpoint:
            self._body = to_json(self.content(endpoint))
            self._endpoint = endpoint

    def _sent(self) -> Attempt:
        attempt = Attempt(self, self._endpoint)  # type: ignore[arg-type]  # its body is encoded for one
        self.attempts += 1
        self.generations += 1
        self.counters.attempts += 1
        self.last_sent_at = attempt.sent_at
        if self.refused_keys and self.refused_keys.issuperset(attempt.endpoint.keys):
            self.refused_keys = frozenset()  # all over again
        attempt.key = self.connections.key_for(attempt.endpoint, self.refused_keys)
        # The second one is for logs, and some gateways write their own there.
        headers = (
            f"{REQUEST_ID_HEADER}: {request_header(self.id, self.revision)}\r\n"
            f"x-request-id: {self.attempt_id}\r\n{self.trace}"
        )
        self.connections.send(attempt, attempt.endpoint, self.path, key=attempt.key, headers=headers, body=self._body)
        return attempt

    def attempt_answered(self, attempt: Attempt, answer: HttpAnswer) -> None:
        """Read an attempt's answer. It must not raise."""
        connections = self.connections
        if answer.status == 200:
            connections.key_accepted(attempt.key)
        elif kind_of_status(answer.status) == "unauthorized":
            self.refused_keys |= {attempt.key}
        try:
            result = self.read(answer.status, answer.body)
        except RetryableError as error:
            error.retry_after = retry_after_seconds(answer.retry_after, now=datetime.now(UTC))
            if error.kind == "busy":
                connections.overloaded(sent_at=attempt.sent_at, now=loop_time())
            self.attempt_ended(attempt, error=error.with_traceback(None))  # its frames have this request, which has it
        except SampleError as error:
            if error.status is None:
                connections.pool_answered()
            self.attempt_ended(attempt, error=error.with_traceback(None))
        except Exception as error:  # a mistake in what reads it is the request's end, not the connection's
            self.attempt_ended(attempt, error=error)
        else:
            if not self.has_ended:
                seconds = loop_time() - attempt.sent_at
                connections.answered(seconds, self.weight)
                if (hedging := connections.hedging(self.path)) is not None:
                    hedging.answered(seconds)
                self._spent_until_answer(attempt, result)
            self.attempt_ended(attempt, result)

    def attempt_ended(self, attempt: Attempt, answer: T | None = None, error: BaseException | None = None) -> None:
        """An attempt came to its end: an answer, or an error, a RetryableError where another attempt may help."""
        if attempt is not self._primary:
            if self._race is not None:
                self._hedge_ended(self._race, attempt, answer, error)
            return
        self._primary = None
        if self.has_ended:
            return
        if not isinstance(error, RetryableError):
            self.finish(answer, error)
        elif self.samples > 1:
            self._give_up(error)
        else:
            self._retry_after(error, attempt)

    def _give_up(self, error: RetryableError | SampleError) -> None:
        self._given_up = error
        self._end_if_hopeless()

    def _end_if_hopeless(self) -> None:
        if self._given_up is not None and not (self._race is not None and self._race.hedges):
            self.finish(error=self._given_up)

    # Between two attempts. No task of its own: a look-up is one for all who wait for it, and a pause is a timer.

    def _retry_after(self, error: RetryableError, attempt: Attempt) -> None:
        connections, used, now = self.connections, attempt.endpoint, loop_time()
        self._retry = retry = _Retry(error, attempt.sent_at)
        beside = None if self._race is None else self._race.failed_at_worker
        counted = self.count_failure(error, beside=beside, now=now)
        end = end_of_tries(self, error, counted, pool=used.pool, is_last=self.has_failed_for_good, now=now)
        if end is not None:
            self._give_up(end)
            return
        since = look_up_since(error, used, admitted=connections.admitted, now=connections.clock())
        if since is None:
            self._pause(retry)
        else:
            self._look_up(retry, used, since)

    def _look_up(self, retry: _Retry, used: Endpoint, since: float) -> None:
        """Go on when it is known whether the pool has moved, which may be now."""
        resolver = self.connections.resolver

        def looked_up(task: "asyncio.Task[None]") -> None:
            if self.has_ended:
                return
            if task.cancelled():
                self.finish(error=RuntimeError("the pool is closed"))
            elif (unusable := task.exception()) is not None:
                self.finish(error=unusable)
            else:
                self._look_up(retry, used, since)

        if (moved := resolver.moved(used, since=since)) is None:
            resolver.look_up().add_done_callback(looked_up)
            return
        is_refused = not self.connections.admitted and self.refused_keys.issuperset(self.connections.endpoint.keys)
        end = end_after_look_up(self, retry.error, used, moved=moved, is_refused=is_refused)
        if isinstance(end, PoolError):
            self.finish(error=end)
        elif end is not None:
            self._give_up(end)
        else:
            if retry.error.kind == "unreachable" and not moved and resolver.problem:
                self.problem += f"; looking it up again: {resolver.problem}"
            self._pause(retry)

    def _pause(self, retry: _Retry) -> None:
        connections, error = self.connections, retry.error
        self._log_retry()
        if error.kind == "unauthorized" and not self.refused_keys.issuperset(connections.endpoint.keys):
            # Another key is tried at once: the connection is likely the same, and then so is the router.
            self._attempt_again()
            return
        seconds, is_away = next_pause(
            self,
            error,
            sent_at=retry.sent_at,
            answered_at=connections.outage.answered_at,
            uniform=connections.uniform,
        )
        self._go_on_within(seconds)
        if is_away:
            connections.outage.pauses(self._go_on_within, at_least=error.retry_after or 0.0)

    def _log_retry(self) -> None:
        counters, now = self.counters, self.connections.clock()
        log.debug("retrying %s after attempt %d: %s", self.label, self.attempts, self.problem)
        if now - counters.retry_logged_at >= LOG_SECONDS:
            counters.retry_logged_at = now
            log.warning(
                "%d samples needed a retry so far %s; now sample %s, attempt %d (request %s): %s",
                counters.retried,
                dict(counters.retries),
                self.label,
                self.attempts,
                self.attempt_id,
                self.problem,
            )

    def _go_on_within(self, seconds: float) -> None:
        if (retry := self._retry) is None:
            return
        if retry.timer is not None:
            if retry.timer.when() <= loop_time() + seconds:
                return
            retry.timer.cancel()
        retry.timer = self.connections.call_later(seconds, self._attempt_again)

    def _attempt_again(self) -> None:
        self._end_pause()
        self.counters.retry(self.kind or "", first=self.retries == 1)
        self._spent_in_vain(None)
        self._begin_attempt()

    def _end_pause(self) -> None:
        if self._retry is not None and self._retry.timer is not None:
            self._retry.timer.cancel()
            self.connections.outage.forget(self._go_on_within)
        self._retry = None  # it has the error, whose frames have this request

    # While it is slow.

    def check(self, now: float) -> float:
        """Do what is due: close what is overdue, send a hedge; return when to check again."""
        timeout = self.connections.config.timeout
        often = min(CLOCK_SECONDS, timeout / 8)
        if self._primary is not None and now >= (self._began or now) + timeout / 2:
            self.connections.in_work.refresh(now, older_than=often)
            self._subtract_queueing(self._primary)
        deadline = (self._began or now) + timeout
        if now >= deadline:
            self._deadline_passed()
            return deadline
        due = [deadline, max(deadline - timeout / 2, now + often)]
        hedging = self.connections.hedging(self.path)
        due.append(
            now + (self._check_hedges(hedging, now) if hedging is not None else self.connections.soonest_seconds)
        )
        return min(due)

    def _subtract_queueing(self, attempt: Attempt) -> None:
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
        now, primary = loop_time(), self._primary
        if self.has_ended or primary is None or not self.may_hedge or not hedging.is_straggler(now - primary.sent_at):
            return
        if self.connections.in_work.verdict(self.id, sent_at=primary.sent_at) not in ("in_work", "asking"):
            self._send_hedge(self._racing())

    def _check_hedges(self, hedging: Hedging, now: float) -> float:
        """Send a hedge where one is due; returns after how many seconds to check again."""
        race, soonest, outage = self._racing(), self.connections.soonest_seconds, self.connections.outage
        if self._primary is None or not self.may_hedge:
            return soonest  # in a pause; the next attempt may be a straggler in its turn
        sent_at = self._primary.sent_at
        elapsed = now - sent_at
        # The workers are asked a little earlier than the answer is needed.
        early = hedging.straggles_in(elapsed) - hedging.floor_seconds / 2
        if early > 0:
            return early
        is_urgent = hedging.usual_seconds > 0
        verdict = self.connections.in_work.verdict(self.id, sent_at=sent_at, is_urgent=is_urgent)
        if verdict == "in_work":
            return min(MOST_RECHECK_SECONDS, max(soonest, elapsed / 4))
        if verdict == "asking":
            return 0.0
        wait = soonest
        if race.room > 0:
            is_lost = verdict in ("lost", "silent")
            wait = hedging.wait(now - self.last_sent_at, beside=race.sent, is_lost=is_lost)
            if wait == 0:
                hedging.spend()
                race.budgeted += 1
                self._send_hedge(race)
                if race.sent == 1:
                    # The question took time, which the next one does not wait once more.
                    self.last_sent_at -= min(hedging.floor_seconds / 2, elapsed - hedging.patience)
                wait = hedging.wait(now - self.last_sent_at, beside=race.sent, is_lost=is_lost)
        if not hedging.is_straggler(elapsed):
            return wait
        # Where nothing at all is answered, one of those that are held is sent anew, in its turn.
        if outage.wants_canary(sent_at=sent_at, usual_seconds=hedging.usual_seconds, now=now):
            outage.canary_sent(self._send_hedge(race))
        return min(wait, soonest)

    def _racing(self) -> Race:
        if self._race is None:
            self._race = Race()
        return self._race

    def _send_hedge(self, race: Race) -> Attempt:
        race.sent += 1
        self.counters.hedges += 1
        hedge = self._sent()
        race.hedges.append(hedge)
        return hedge

    def _hedge_ended(self, race: Race, hedge: Attempt, answer: T | None, error: BaseException | None) -> None:
        race.hedges.remove(hedge)
        if self.has_ended:
            return
        if isinstance(error, RetryableError) and not error.may_have_cost:
            self.generations -= 1
        if isinstance(error, AnotherRevisionError):
            self.count_refusal(now=loop_time(), beside=True)
        if isinstance(error, RetryableError | asyncio.CancelledError):
            if isinstance(error, RetryableError) and error.kind == "worker":
                race.failed_at_worker = error
            self._end_if_hopeless()  # the others have their chance still
            return
        self.counters.hedges_won += 1
        if (hedging := self.connections.hedging(self.path)) is not None:
            hedging.won(race.budgeted)
        self.finish(answer, error)

    def _in_flight(self) -> list[Attempt]:
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
            if self.samples == 1 and (caused := cause(error)) is not None:
                self.counters.failed(*caused)
                if isinstance(error, SampleError):
                    error = self.connections.breaker.failed(error, where=where(self.connections.endpoint))
            self._error = error
        self._count_end()
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.leave(self)
        elif self._began is not None:
            self.connections.timer.remove(self)
            self.counters.tokens_ended(self.tokens)
            self._close_attempts()  # first: whoever gets the place sends at once
            self.connections.slots.release(self.weight)
        self.notify()

    def notify(self) -> None:
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
        self._end_pause()
        hedging = None if isinstance(self._error, asyncio.CancelledError) else self.connections.hedging(self.path)
        now = loop_time()
        for attempt in self._in_flight():
            if hedging is not None and hedging.is_straggler(now - attempt.sent_at):
                self.connections.timer.leave_open(attempt)
            else:
                attempt.cancel()
        self._race = None  # it has this request; what is left open has no say any more
