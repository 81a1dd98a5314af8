"""Limit on requests in flight: the config's `concurrency` while all is well, fewer while the pool is overloaded.

"Too much" is HTTP 408, 425, 429, 502, 503, 504, or no answer within the attempt's time. It halves the number, once for
all that was sent before it. Answers let it grow again, by an eighth for each round of them (as many as may be in
flight), while they take about as long as in the best round since.

It begins at `concurrency` and slow answers alone never lower it. A queue at the routers is what autoscaling measures: a
client that backs off as soon as requests take longer would keep a pool at its smallest size for ever. For the same
reason it never falls below an eighth of `concurrency`, and a router that says it has no worker is not overloaded.

A request takes one slot, and a long sequence of token ids several (`weight`). One that takes more than there are goes
alone, and none overtakes another that waits.
"""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

# The number never falls below `concurrency` divided by this.
LEAST_SHARE = 8
# In each round the size grows by itself divided by this.
GROWTH_SHARE = 8
# Answers hold their time when a round's mean is at most this many times that of the best round.
HOLDS = 1.5
# The best round's mean grows by this where a round did not hold, so that longer samples do not keep it low.
FADE = 1.1


class AdaptiveLimit:
    """The number of requests that may be in flight. Pure: what happened goes in, `limit` comes out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._least = max(1, most // LEAST_SHARE)
        self._cut_at = float("-inf")
        self.limit = most
        self._new_round()
        self._best = float("inf")

    def _new_round(self) -> None:
        self._answers = 0
        self._seconds = 0.0

    def overloaded(self, *, sent_at: float, now: float) -> None:
        """A request sent at `sent_at` said at `now` that it is too much (seconds of one clock)."""
        if sent_at < self._cut_at:
            return
        self._cut_at = now
        self.limit = max(self._least, self.limit // 2)
        self._best = float("inf")
        self._new_round()

    def answered(self, seconds: float, weight: int = 1) -> None:
        """A request that took `weight` slots was answered after so many seconds."""
        if self.limit == self._most:
            return
        self._answers += weight
        self._seconds += seconds * weight
        if self._answers < self.limit:
            return
        mean = self._seconds / self._answers
        self._new_round()
        if mean <= HOLDS * self._best:
            self._best = min(self._best, mean)
            self.limit = min(self._most, self.limit + max(1, self.limit // GROWTH_SHARE))
        else:
            self._best *= FADE


class Waiter(Protocol):
    @property
    def weight(self) -> int:
        """Slots that it takes, at least 1; always the same."""

    @property
    def waiting_since(self) -> float:
        """Start of its wait; all of one clock."""

    def start(self) -> None:
        """Receive them."""

    def expire(self) -> None:
        """End a wait that took too long, without a slot."""


W = TypeVar("W", bound=Waiter)


class Queue(Generic[W]):
    def __init__(self) -> None:
        self._waiting: OrderedDict[W, None] = OrderedDict()

    def leave(self, waiter: W) -> None:
        self._waiting.pop(waiter, None)

    def expire_before(self, since: float) -> None:
        for waiter in [waiter for waiter in self._waiting if waiter.waiting_since <= since]:
            if waiter in self._waiting:  # one that ends may end others
                del self._waiting[waiter]
                waiter.expire()


class AdaptiveLimiter(Queue[Waiter]):
    """Limiter whose size changes without loss of a slot; requests without theirs wait in order."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._taken = 0

    def acquire(self, waiter: Waiter) -> None:
        if not self._waiting and self._has_room(waiter.weight):
            self._taken += waiter.weight
            waiter.start()
        else:
            self._waiting[waiter] = None

    def release(self, weight: int) -> None:
        """Release the slots of one request; those that wait longest get them."""
        self._taken -= weight
        self._fill()

    def leave(self, waiter: Waiter) -> None:
        """End a wait; those behind it may need fewer slots."""
        super().leave(waiter)
        self._fill()

    def expire_before(self, since: float) -> None:
        super().expire_before(since)
        self._fill()

    def resize(self, size: int) -> None:
        if size != self._size:
            self._size = size
            self._fill()

    def _has_room(self, weight: int) -> bool:
        return self._taken + weight <= self._size or self._taken == 0

    def _fill(self) -> None:
        while self._waiting and self._has_room(next(iter(self._waiting)).weight):
            waiter, _ = self._waiting.popitem(last=False)
            self._taken += waiter.weight
            waiter.start()
