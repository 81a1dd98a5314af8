"""Hedges: further requests beside one that takes unusually long.

A worker whose packets are dropped refuses nothing: the router holds what it has there for half a minute. Every other
request is answered in its usual time, so the client knows soon that something is wrong, and asks again. Scores and
judgements change nothing at the worker, so a request may run twice; the first usable answer counts. If those beside it
are silent too there are more. `Hedging` decides for all requests of one path; `Race` is the state of one request.

    who: what no worker has in work, as far as the workers say what they have (`in_work.py`)
    wait: FACTOR times the 95th percentile of the latest answers, at least FLOOR_SECONDS. Before MIN_KNOWN answers
          BLIND_SECONDS, and only where the workers say that none has it, or one of them is silent.
          As long again for the second one, since the first may have gone to the silent worker too; each further one
          after GROWTH times the wait before
    budget: SHARE of a token for every request, and in hand as many as half the requests in flight

The budget is what keeps a fleet that is slow as a whole from being asked for everything twice. In hand it has what a
pool of two workers needs that loses one. Hedges that were answered first give their tokens back: they took the place
of a request that would have waited for nothing. In a slow fleet they do not win, since who asked first is served first;
but a silent worker draws one request after the other until the router notices, and each needs its hedge. (The
technique: Dean and Barroso, "The Tail at Scale", 2013.)
"""

import math
from collections import deque
from dataclasses import dataclass, field

from rewardpool._client.connections.exchange import Exchange
from rewardpool._client.rules.retry import RetryableError, Tries

QUANTILE = 0.95
FACTOR = 2.0
# Below this a second request gains nothing that a trainer notices.
FLOOR_SECONDS = 0.25
# Fewer answers than this do not say what time is usual.
MIN_KNOWN = 20
# The wait before the hedge of a request that no worker has, while the usual time is not known.
BLIND_SECONDS = 5.0
# Maximum share of requests that get a second attempt, in the long run.
SHARE = 0.05
MIN_BURST = 8.0
# Factor from one hedge's wait to the next: with the floor the third is sent after 0.9 s, and the last after 5 s.
GROWTH = 1.5
# Hedges beside one request. A router may send them to the silent worker too, which soon has the fewest in flight, until
# it notices some seconds later; by then the last of these has been sent.
MOST_HEDGES = 7
RECENT = 256
# Answers between two calculations of the quantile, which needs a sort.
REFRESH = 16


class Hedging:
    """Usual times of requests, and the rest of the budget of hedges. Pure: seconds go in, decisions come out."""

    def __init__(self, *, concurrency: int, floor_seconds: float = FLOOR_SECONDS) -> None:
        """`concurrency` is the requests in flight, half of which may be hedged at once."""
        self.floor_seconds = floor_seconds
        self._capacity = max(MIN_BURST, concurrency / 2)
        self._tokens = self._capacity
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._seen = 0
        self._usual: float | None = None

    def answered(self, seconds: float) -> None:
        self._recent.append(seconds)
        self._seen += 1
        if self._seen >= MIN_KNOWN and (self._usual is None or self._seen % REFRESH == 0):
            ordered = sorted(self._recent)
            self._usual = ordered[math.ceil(QUANTILE * len(ordered)) - 1]

    def sent(self) -> None:
        self._tokens = min(self._capacity, self._tokens + SHARE)

    def wait(self, elapsed: float, *, beside: int = 0, is_lost: bool = False) -> float:
        """Return the seconds until a request that has taken `elapsed` is checked again; 0 when it is a straggler.

        Where that is not known, or nothing is left of the budget, it is checked again after the floor. With `beside`
        others sent already, `elapsed` is that of the latest. `is_lost`: the workers say that none of them has it.
        """
        if self._tokens < 1 or (self._usual is None and not is_lost):
            return self.floor_seconds
        return max(0.0, self.patience * GROWTH ** max(0, beside - 1) - elapsed)

    def straggles_in(self, elapsed: float) -> float:
        """Return the seconds until a request that has taken `elapsed` is a straggler, or may be one; 0 where it is."""
        return max(0.0, self.patience - elapsed)

    @property
    def patience(self) -> float:
        return BLIND_SECONDS if self._usual is None else max(self.floor_seconds, FACTOR * self._usual)

    @property
    def usual_seconds(self) -> float:
        """Seconds in which most requests are answered; 0 where unknown."""
        return self._usual or 0.0

    def is_straggler(self, elapsed: float) -> bool:
        """Return whether a request has taken unusually long; False while that is unknown."""
        return self._usual is not None and elapsed >= self.patience

    def spend(self) -> None:
        self._tokens -= 1

    def won(self, hedges: int) -> None:
        """Count the hedges of one request, of which one was answered first."""
        self._tokens = min(self._capacity, self._tokens + hedges)


@dataclass(slots=True, eq=False)
class Race:
    """Hedges beside one request, of which the first answer counts; made at the first check."""

    hedges: list[Exchange] = field(default_factory=list)
    sent: int = 0
    budgeted: int = 0
    # Failure of a hedge since the present attempt was sent.
    failed_at_worker: RetryableError | None = None

    def next_attempt(self) -> None:
        self.sent = len(self.hedges)
        self.failed_at_worker = None
        if not self.hedges:
            self.budgeted = 0

    @property
    def room(self) -> int:
        return MOST_HEDGES - self.sent


def beside_retry(tries: Tries) -> int:
    """Return how many hedges go beside a further attempt from the start, outside the budget."""
    # An idle router gives the same text to the same worker again and again, and several at a time to different ones.
    match tries.kind:
        case "invalid_response":
            return int(tries.max_generations is None)
        case "other_revision" if tries.refusals is not None:  # those that are refused cost nothing
            most = MOST_HEDGES if tries.max_generations is None else tries.max_generations - tries.generations - 1
            return min(most, tries.refusals.count)
    return 0
