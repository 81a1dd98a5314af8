"""When another attempt may help, and how long to pause before it.

A failed attempt is a `Setback` of one kind, and the kind alone decides:

| kind | what happened | another attempt |
|---|---|---|
| unreachable | refused, unknown host, no connection in time | until the deadline, the address looked up again |
| waiting | the router says that it has no worker: a code in a 404 or 503 | until the deadline, at an even pace |
| busy | the router is too busy, or on its way: 408, 425, 429, 502, 503, 504 | until the deadline |
| worker | a worker failed: HTTP 500, silence, a broken connection | at most `attempts` of these |
| nonsense | HTTP 200 with no usable answer | at most twice as many, the further ones in pairs |
| missing | 404: something else lives at the address | only if the address turns out to have moved |
| denied | 401 or 403 | with every other key there is; until the deadline if the pool ever took one |

Waiting for a pool that is away costs nothing but time, so only the deadline bounds it; a worker that fails on a sample
may fail on it every time, so that is bounded by number. Nonsense is bounded more widely: to the router, a worker that
answers nonsense is a good one, so with one such worker of two every attempt is a toss of a coin, and an idle router
that knows the text chooses the same worker again. It does not when two requests come at a time.

Pauses grow and have full jitter: a random part of a bound that doubles, so that a thousand samples which failed
together do not come back together. Where there is no worker yet the pace is even instead: a pool at zero is woken by
these attempts, and sized by their number.

A key that worked and is refused is being rotated: routers change to the new one after the other, behind one address, so
for some seconds it is chance which of the two keys is right. A key that never worked is a mistake, and said at once.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from rewardpool_api.contract import WAITING_PAUSE_SECONDS

Kind = Literal["unreachable", "waiting", "busy", "worker", "nonsense", "missing", "denied"]

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
    408: "busy",
    425: "busy",
    429: "busy",
    502: "busy",
    503: "busy",
    504: "busy",
}
_FINAL_SERVER_ERRORS = frozenset({501, 505})
"""Not implemented, and a HTTP version that is not spoken: the next worker is the same program."""


class Setback(Exception):  # noqa: N818 - not an error for the caller: one attempt failed, and another may do
    """One attempt failed in a way that another may mend."""

    def __init__(self, kind: Kind, problem: str) -> None:
        super().__init__(kind, problem)
        self.kind: Kind = kind
        self.problem = problem


def kind_of_status(status: int) -> Kind | None:
    """The kind of setback a HTTP status other than 200 is, or None when repeating the request cannot help."""
    if status in _FINAL_SERVER_ERRORS:
        return None
    return _BY_STATUS.get(status) or ("worker" if status >= 500 else None)


def pause_seconds(setbacks: int, kind: Kind, *, uniform: Callable[[float, float], float]) -> float:
    """How long to pause after so many setbacks (from 1) of one sample: full jitter under a doubling bound."""
    if kind == "waiting":
        return uniform(*WAITING_PAUSE_SECONDS)
    longest = LONGEST_QUICK_PAUSE_SECONDS if kind in ("denied", "nonsense") else LONGEST_PAUSE_SECONDS
    doublings = min(setbacks - 1, 16)
    return uniform(0.0, min(longest, FIRST_PAUSE_SECONDS * 2**doublings))
