"""When another attempt may help, and how long to pause before it.

A failed attempt is a `RetryableError` of one kind, and the kind alone decides:

| kind | what happened | another attempt |
|---|---|---|
| unreachable | refused, unknown host, no connection in time | until the deadline, the address looked up again |
| stale | a kept connection broke before an answer began | at once, on a new connection |
| waiting | the router says that it has no worker: a code in a 404 or 503 | until the deadline, at an even pace |
| busy | the router is too busy, or on its way: 408, 425, 429, 502, 503, 504 | until the deadline |
| worker | a worker failed: HTTP 500, silence, a broken connection | at most `attempts` of these |
| nonsense | HTTP 200 with no usable answer | at most twice as many, the further ones in pairs |
| missing | 404 or 405: something else lives at the address | only if the address turns out to have moved |
| denied | 401 or 403 | with every other key there is; until the deadline if the pool ever took one |

Waiting for a pool that is away costs nothing but time, so only the deadline bounds it; a worker that fails on a sample
may fail on it every time, so that is bounded by number. Nonsense is bounded more widely: to the router, a worker that
answers nonsense is a good one, so with one such worker of two every attempt is a toss of a coin, and an idle router
that knows the text chooses the same worker again. It does not when two requests come at a time.

A kept connection that breaks says nothing of the worker: a server closes those that were idle, and one that was
restarted knows none of them. That is why it is no failure, and why the next attempt is on a new connection, where a
break is one.

Pauses grow and have full jitter: a random part of a bound that doubles, so that a thousand samples which failed
together do not come back together. Where there is no worker yet the pace is even instead: a pool at zero is woken by
these attempts, and sized by their number. A server that says when to come again (`Retry-After`) is obeyed. While a
pool answers nothing at all, pauses end with the first answer (`outage.py`).

A key that worked and is refused is being rotated: routers change to the new one after the other, behind one address, so
for some seconds it is chance which of the two keys is right. A key that never worked is a mistake, and said at once.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from rewardpool_api.contract import WAITING_PAUSE_SECONDS

Kind = Literal["unreachable", "stale", "waiting", "busy", "worker", "nonsense", "missing", "denied"]

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
LONGEST_QUICK_PAUSE_SECONDS = 1.0
"""While a key is rotated, or one worker answers nonsense, every other attempt or so succeeds."""
FAILURES: Mapping[Kind, float] = {"worker": 1.0, "nonsense": 0.5}
"""What a setback counts against `attempts`; others do not."""

_BY_STATUS: dict[int, Kind] = {
    401: "denied",
    403: "denied",
    404: "missing",
    405: "missing",
    408: "busy",
    425: "busy",
    429: "busy",
    502: "busy",
    503: "busy",
    504: "busy",
}
_FINAL_SERVER_ERRORS = frozenset({501, 505})
"""Not implemented, and a HTTP version that is not spoken: the next worker is the same program."""


_TOO_MUCH = frozenset({408, 425, 429})
"""The server is there and asks for fewer requests."""


class RetryableError(Exception):
    """One attempt failed in a way that another may repair; `retry_after` is in seconds, where the server named any."""

    def __init__(self, kind: Kind, problem: str, *, status: int | None = None) -> None:
        super().__init__(kind, problem)
        self.kind: Kind = kind
        self.problem = problem
        self.status = status
        self.retry_after: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether nobody was there to answer, rather than somebody with too much to do."""
        return self.kind in ("unreachable", "waiting") or (self.kind == "busy" and self.status not in _TOO_MUCH)


def kind_of_status(status: int) -> Kind | None:
    """The kind of setback a HTTP status other than 200 is, or None when repeating the request cannot help."""
    if status in _FINAL_SERVER_ERRORS:
        return None
    return _BY_STATUS.get(status) or ("worker" if status >= 500 else None)


def pause_seconds(
    setbacks: int, kind: Kind, *, uniform: Callable[[float, float], float], retry_after: float | None = None
) -> float:
    """How long to pause after so many setbacks (from 1) of one sample: full jitter under a doubling bound.

    `retry_after` is what the server asked for, in seconds: the pause is at least that, and the jitter comes on top.
    """
    if kind == "waiting":
        return max(uniform(*WAITING_PAUSE_SECONDS), retry_after or 0.0)
    longest = LONGEST_QUICK_PAUSE_SECONDS if kind in ("denied", "nonsense") else LONGEST_PAUSE_SECONDS
    doublings = min(setbacks - 1, 16)
    return (retry_after or 0.0) + uniform(0.0, min(longest, FIRST_PAUSE_SECONDS * 2**doublings))


def retry_after_seconds(header: str | None, *, now: datetime) -> float | None:
    """What a `Retry-After` header asks for, which has seconds or a date; None where there is none that can be read."""
    if header is None:
        return None
    try:
        seconds = float(header) if header.strip().isdecimal() else (parsedate_to_datetime(header) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):  # no date; one without a zone
        return None
    return max(0.0, seconds)
