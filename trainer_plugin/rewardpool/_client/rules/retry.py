"""Rules of retries: whether another attempt may help, the pause before it, and when the request fails.

`Tries` is the state of one request, and the rules are functions of it, which `request.py` calls. A failed attempt is a
`RetryableError` of one kind, and the kind alone decides:

| kind | what happened | another attempt |
|---|---|---|
| unreachable | refused, unknown host, no connection in time | until the deadline, the address looked up again |
| waiting | the router says that it has no worker: a code in a 404 or 503 | until the deadline, at an even pace |
| busy | the router is too busy, or on its way: 408, 425, 429, 502, 503, 504 | until the deadline |
| worker | a worker failed: HTTP 500, silence, a broken connection | at most `max_attempts` of these |
| invalid_response | HTTP 200 without a usable score | at most twice as many, the further ones in pairs |
| not_found | 404 or 405: something else lives at the address | only if the address turns out to have moved |
| wrong_model | the worker serves another model | only if the pool turns out to have moved |
| unauthorized | 401 or 403 | with every other key there is; until the deadline if the pool ever took one |
| other_revision | a worker of another revision | until only others have answered for a while |

The request goes to the same router again, which by then avoids a worker that failed.

Waiting for a pool that is away costs nothing but time, so only the deadline bounds it; a worker that fails on a sample
may fail on it every time, so that is bounded by number. Invalid responses are bounded more widely: to the router,
a worker that sends them is healthy, so with one such worker of two every attempt is a toss of a coin, and an idle
router that knows the text chooses the same worker again. It does not when two requests come at a time. An attempt at a
judge may have cost a generation, so those are bounded by `max_generations` instead, hedges included. So may one that
a gateway gave up (408, 502, 504): the engine behind it may write on.

A kept connection that breaks before an answer begins says nothing of the worker: a server closes those that were idle,
and one that was restarted knows none of them. It is no failure and no attempt: the request goes on a new connection
(`http.py`), and breaks there if it breaks. A judge may have begun all the same, so it counts as one more generation.

Pauses grow and have full jitter: a random part of a bound that doubles, so that a thousand samples which failed
together do not come back together. Where there is no worker yet the pace is even instead: a pool at zero is woken by
these attempts, and sized by their number. A server that says when to come again (`Retry-After`) is obeyed. While a
pool answers nothing at all, pauses end with the first answer (`outage.py`).

A key that worked and is refused is being rotated: routers change to the new one after the other, behind one address, so
for some seconds it is chance which of the two keys is right. A key that never worked is a mistake, and said at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from rewardpool._backoff import LONGEST_PAUSE_SECONDS, pause_seconds
from rewardpool._client.connections.connect import UnreachableError
from rewardpool._client.connections.exchange import BrokenError
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._discovery.pool_sources import LocalSource
from rewardpool.errors import (
    DeadlineError,
    FailureKind,
    PoolAccessError,
    PoolError,
    RevisionGoneError,
    SampleError,
    ScoreError,
    WrongModelError,
    WrongTokenizerError,
)
from rewardpool_api.contract import WAITING_PAUSE_SECONDS, Fault, InvalidResponseError, OtherRevisionError

Kind = Literal[
    "unreachable",
    "waiting",
    "busy",
    "worker",
    "invalid_response",
    "not_found",
    "wrong_model",
    "unauthorized",
    "other_revision",
]

# Answers by workers of other revisions, over at least `REFUSING_SECONDS`: then the wanted revision is gone. As many are
# sent beside an attempt as were refused before it, as an idle router gives the same text to the same worker again and
# again. Where one worker of five is of the wanted revision, 24 drawn at random miss it once in 200 times.
REFUSALS = 24
# The same of attempts alone, where those beside them are slow or may not be sent.
REFUSED_ATTEMPTS = 8
REFUSING_SECONDS = 2.0
# While a key is rotated, one worker sends invalid responses, or two revisions serve, every other attempt succeeds.
LONGEST_QUICK_PAUSE_SECONDS = 1.0
# Weights of failed attempts against `max_attempts`; other kinds do not count.
FAILURES: Mapping[Kind, float] = {"worker": 1.0, "invalid_response": 0.5}
# Between two look-ups of an unreachable pool's address, at least.
LOOK_AGAIN_SECONDS = 1.0
# The same where the address is in a file of this machine, which costs nothing.
LOOK_AGAIN_HERE_SECONDS = 0.2
# The same of a pool that is there and has no worker.
LOOK_AGAIN_WAITING_SECONDS = 15.0

_BY_STATUS: dict[int, Kind] = {
    401: "unauthorized",
    403: "unauthorized",
    404: "not_found",
    405: "not_found",
    408: "busy",
    425: "busy",
    429: "busy",
    502: "busy",
    503: "busy",
    504: "busy",
}
# No retry changes these: the next worker is the same program.
_FINAL_SERVER_ERRORS = frozenset({501, 505})
# The server is there and wants fewer requests.
_TOO_MUCH = frozenset({408, 425, 429})
# A worker may have begun, and may go on.
_GIVEN_UP = frozenset({408, 502, 504})
# No place is free; the server is not broken.
_NO_PLACE = _TOO_MUCH | {503}


class RetryableError(Exception):
    """Failure of one attempt that another may repair; `retry_after` is in seconds, where the server named any."""

    def __init__(self, kind: Kind, problem: str, *, status: int | None = None, served: str | None = None) -> None:
        super().__init__(kind, problem)
        self.kind: Kind = kind
        self.problem = problem
        self.status = status
        # Model of the worker, for `wrong_model`.
        self.served = served
        self.retry_after: float | None = None

    @property
    def fault(self) -> Fault:
        return "capacity" if self.kind == "waiting" or self.status in _NO_PLACE else "infra"

    @property
    def may_have_cost(self) -> bool:
        """True if a worker may have begun to answer."""
        return self.kind in FAILURES or self.status in _GIVEN_UP

    @property
    def is_away(self) -> bool:
        """True if no server answered, rather than one that is overloaded."""
        return self.kind in ("unreachable", "waiting") or (self.kind == "busy" and self.status not in _TOO_MUCH)


class AnotherRevisionError(RetryableError):
    """A worker of another revision answered than the one that may; another worker may be of that one."""

    def __init__(self, error: OtherRevisionError) -> None:
        super().__init__("other_revision", str(error))
        self.wanted = error.wanted
        self.found = error.found


@dataclass(slots=True)
class Refusals:
    since: float
    """By the loop's clock."""
    attempts: int = 0
    beside: int = 0

    @property
    def count(self) -> int:
        return self.attempts + self.beside

    def are_final(self, *, now: float) -> bool:
        """Return whether the wanted revision is taken to be gone."""
        enough = self.attempts >= REFUSED_ATTEMPTS or self.count >= REFUSALS
        return enough and now - self.since >= REFUSING_SECONDS


def kind_of_status(status: int) -> Kind | None:
    """Return the kind of failure of an HTTP status other than 200; None if repeating the request cannot help."""
    if status in _FINAL_SERVER_ERRORS:
        return None
    return _BY_STATUS.get(status) or ("worker" if status >= 500 else None)


def unanswered(error: Exception, endpoint: Endpoint) -> Exception:
    """Return the error of an attempt without an answer; a RetryableError, unless it is a mistake of the program."""
    match error:
        case UnreachableError():
            problem = f"{endpoint.url}, found by {endpoint.origin}, cannot be reached: {error}"
            return RetryableError("unreachable", problem)
        case BrokenError():
            return RetryableError("worker", f"the connection broke: {error}")
        case InvalidResponseError():
            return RetryableError("invalid_response", str(error))
    return error


def pause_before(
    retries: int, kind: Kind, *, uniform: Callable[[float, float], float], retry_after: float | None = None
) -> float:
    """Return the seconds to pause before a retry of that number (from 1) of one request.

    `retry_after` is the server's, in seconds: the pause is at least that, and the jitter comes on top.
    """
    if kind == "waiting":
        return max(uniform(*WAITING_PAUSE_SECONDS), retry_after or 0.0)
    is_quick = kind in ("unauthorized", "invalid_response", "other_revision")
    longest = LONGEST_QUICK_PAUSE_SECONDS if is_quick else LONGEST_PAUSE_SECONDS
    return (retry_after or 0.0) + pause_seconds(retries, uniform=uniform, longest_seconds=longest)


def retry_after_seconds(header: str | None, *, now: datetime) -> float | None:
    """Return the seconds of a `Retry-After` header, which has seconds or a date; None if it cannot be read."""
    if header is None:
        return None
    try:
        seconds = float(header) if header.strip().isdecimal() else (parsedate_to_datetime(header) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):  # no date; one without a zone
        return None
    return max(0.0, seconds)


@dataclass(slots=True, eq=False, repr=False)
class Tries:
    """Attempts of one request so far, by which the rules decide."""

    _: KW_ONLY
    label: str
    max_generations: int | None = None
    """Hedges included, where each may cost a generation; None: by `max_attempts`."""

    # Sent so far, hedges among them.
    attempts: int = field(default=0, init=False)
    generations: int = field(default=0, init=False)
    # Attempts that failed and were worth another one.
    retries: int = field(default=0, init=False)
    # Answers by workers of another revision than the one that may answer.
    refusals: Refusals | None = field(default=None, init=False)
    # When the latest failed attempt was sent, by the loop's clock.
    failed_at: float | None = field(default=None, init=False)
    # Retries since or during which the pool answered another request.
    overtaken: int = field(default=0, init=False)
    # Failures at a worker, the only ones that are bounded by number; see `FAILURES`.
    failures: float = field(default=0.0, init=False)
    kind: Kind | None = field(default=None, init=False)
    problem: str = field(default="", init=False)
    fault: Fault = field(default="infra", init=False)
    # Keys refused since all of them were tried last.
    refused_keys: frozenset[str | None] = field(default=frozenset(), init=False)

    @property
    def may_hedge(self) -> bool:
        return self.max_generations is None or self.generations < self.max_generations

    def count_failure(self, error: RetryableError, *, beside: RetryableError | None, now: float) -> RetryableError:
        """Count a failed attempt, and `beside`, a failed hedge; return the one that counts against `max_attempts`."""
        self.retries += 1
        self.kind, self.problem, self.fault = error.kind, error.problem, error.fault
        # Of those sent beside it, which may be several at a time, all together count once.
        counted = beside if error.kind == "other_revision" and beside is not None else error
        self.failures += FAILURES.get(counted.kind, 0.0)
        if not error.may_have_cost:
            self.generations -= 1
        if isinstance(error, AnotherRevisionError):
            self.count_refusal(now=now)
        return counted

    def count_refusal(self, *, now: float, beside: bool = False) -> None:
        if self.refusals is None:
            self.refusals = Refusals(now)
        self.refusals.attempts += not beside
        self.refusals.beside += beside


def end_of_tries(
    tries: Tries, error: RetryableError, counted: RetryableError, *, pool: str, is_last: bool, now: float
) -> SampleError | None:
    """Return the error with which a failed attempt ends its request; None where another one may help.

    Args:
        counted: The failure that counts, as `Tries.count_failure` returned it.
        is_last: Whether a failure at a worker is the last one.
        now: The loop's time.
    """
    if isinstance(error, AnotherRevisionError) and tries.refusals is not None and tries.refusals.are_final(now=now):
        return RevisionGoneError(tries.label, pool, error.wanted, error.found)
    if counted.may_have_cost and is_last:
        problem = f"no usable answer in {tries.attempts} attempts; last: {counted.problem}"
        return ScoreError(tries.label, problem, fault=counted.fault, kind=counted.kind)
    return None


def look_up_since(error: RetryableError, used: Endpoint, *, admitted: bool, now: float) -> float | None:
    """Return since when the pool has to have been looked up before another attempt; None: that cannot help."""
    match error.kind:
        case "unauthorized":
            return now - LOOK_AGAIN_SECONDS if admitted else now
        case "not_found" | "wrong_model":
            return now
        case "unreachable":
            is_here = isinstance(used.source, LocalSource)
            return now - (LOOK_AGAIN_HERE_SECONDS if is_here else LOOK_AGAIN_SECONDS)
        case "waiting":
            # No hurry, but the address may have become another pool's.
            return now - LOOK_AGAIN_WAITING_SECONDS
    return None


def end_after_look_up(
    tries: Tries, error: RetryableError, used: Endpoint, *, moved: bool, is_refused: bool
) -> SampleError | PoolError | None:
    """Return the error that a look-up of the pool has made final; None where another attempt may help.

    Args:
        moved: Whether the pool is elsewhere now.
        is_refused: Whether the pool took no key ever, and refused all that there are.
    """
    match error.kind:
        case "unauthorized" if is_refused:
            return _no_access(used, error.problem)
        case "not_found" if not moved:
            final = ScoreError(tries.label, f"{where(used)}, does not serve it: {error.problem}", kind="not_found")
            final.status = error.status
            return final
        case "wrong_model" if not moved:
            requested = used.model_fields.get("user") or used.served_name
            return WrongModelError(where(used), requested, error.served, error.problem)
    return None


def next_pause(
    tries: Tries, error: RetryableError, *, sent_at: float, answered_at: float, uniform: Callable[[float, float], float]
) -> tuple[float, bool]:
    """Return the seconds before the next attempt, and whether the pool is away: an answer to another ends the pause.

    Args:
        sent_at: Time at which that was sent; times are the loop's.
        answered_at: Time at which the pool answered last.
        uniform: A random number between two bounds.
    """
    retries, kind, is_away = tries.retries, error.kind, error.is_away
    before = sent_at if tries.failed_at is None else tries.failed_at
    tries.failed_at = sent_at
    if is_away and answered_at > before:
        # The pool answers others, so earlier failures are no reason for a long pause. Trap: this counts from the
        # attempt before. An attempt that is refused within a millisecond has seen no answer, and would be sent
        # again at each answer to another sample.
        tries.overtaken += 1
        retries, kind, is_away = tries.overtaken, "busy", False
    return pause_before(retries, kind, uniform=uniform, retry_after=error.retry_after), is_away


def deadline_error(
    tries: Tries, endpoint: Endpoint, *, timeout: float, worked: float | None, not_ready: str
) -> SampleError | PoolError:
    """Return the error of a request whose deadline passed.

    Args:
        timeout: Seconds of the deadline.
        worked: Seconds for which a worker had worked on it; None where no worker says so.
        not_ready: Reason why the pool was not ready when it was looked up last; else empty.
    """
    if tries.kind == "unauthorized":
        # No trouble of this sample's: every further one would meet it too.
        return _no_access(endpoint, tries.problem)
    fault: Fault = tries.fault
    if tries.attempts == 0:
        fault = "capacity"
        problem = "others waited before it, and the pool answered none of them"
    else:
        problem = tries.problem or "the first attempt had no answer yet"
        if worked is not None and worked > 0:
            fault, problem = "verifier", f"a worker had worked on it for {worked:.1f} s when it was asked last"
        elif worked is not None:
            fault, problem = "capacity", "it waited for a place at a worker when that was asked last"
    if not_ready:
        problem += f"; when the pool was looked up last: {not_ready}"
    return DeadlineError(tries.label, timeout, tries.attempts, problem, fault=fault, kind=tries.kind)


def cause(error: BaseException) -> tuple[Fault, FailureKind] | None:
    """Return the fault and kind under which a sample's end is counted; None where it is not a failure."""
    match error:
        case WrongTokenizerError() | RevisionGoneError():  # the sample is asked again, in other tokens or elsewhere
            return None
        case SampleError():
            return error.fault, error.kind
        case WrongModelError():
            return "infra", "wrong_model"
        case PoolAccessError():
            return "infra", "unauthorized"
        case PoolError():
            return "infra", "no_answer"
    return None


def where(used: Endpoint) -> str:
    return f"{used.url}, found by {used.origin}"


def _no_access(used: Endpoint, problem: str) -> PoolAccessError:
    return PoolAccessError(f"{used.pool} at {used.url} does not take the key found by {used.origin}: {problem}")
