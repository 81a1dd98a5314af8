"""Whose turn it is: changes that an upgraded operator brings to all pools come to a few of them at a time.

A pool asks at every pass for as long as it has something to change, and says when it is done. A turn ends by itself
after a while: one pool whose routers never get ready must not keep all others from theirs. Turns are not written down;
an operator that takes over begins to count anew.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final

from rewardpool_operator.kubernetes.watch.store import Key

LONGEST_TURN_SECONDS: Final = 300.0


class Turns:
    """The turns of all pools.

    Args:
        limit: pools that may change at a time, at least 1.
        wake: is told a pool whose turn may have come.
        clock: monotonic seconds.
    """

    def __init__(
        self, limit: int, *, wake: Callable[[Key], None] = lambda _: None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._limit = limit
        self._wake = wake
        self._clock = clock
        self._begun: dict[Key, float] = {}
        self._waiting: dict[Key, None] = {}

    def take(self, key: Key) -> bool:
        """Whether the pool may change now; one that had to wait is woken later."""
        if key in self._begun:
            return True
        now = self._clock()
        taken = sum(now - begun < LONGEST_TURN_SECONDS for begun in self._begun.values())
        if taken >= self._limit:
            self._waiting[key] = None
            return False
        self._waiting.pop(key, None)
        self._begun[key] = now
        return True

    def holds(self, key: Key) -> bool:
        """Whether it is the pool's turn."""
        return key in self._begun

    def end(self, key: Key) -> None:
        """The pool is done, or gone: the next one that waits has its turn."""
        self._waiting.pop(key, None)
        if self._begun.pop(key, None) is not None:
            for waiting in list(self._waiting)[: self._limit]:
                self._wake(waiting)

    def waiting(self) -> int:
        """Pools that wait for their turn."""
        return len(self._waiting)
