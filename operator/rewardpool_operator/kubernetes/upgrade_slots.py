"""Limit on the pools that an upgraded operator changes at a time: a pool replaces its routers while it has a slot.

A pool tries to acquire a slot at every pass for as long as it has something to change, and releases it when it is done.
A slot expires after a while: one pool whose routers never get ready must not keep all others from theirs. Slots are not
written down; an operator that takes over begins to count anew.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final

from rewardpool_operator.kubernetes.cache.store import Key

SLOT_SECONDS: Final = 300.0  # after which a slot no longer counts, released or not


class UpgradeSlots:
    """The upgrade slots of all pools; `wake` is called with a pool for which there may be a slot now."""

    def __init__(
        self, limit: int, *, wake: Callable[[Key], None] = lambda _: None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._limit = limit
        self._wake = wake
        self._clock = clock
        self._acquired: dict[Key, float] = {}
        self._waiting: dict[Key, None] = {}

    def acquire(self, key: Key) -> bool:
        """Return whether the pool has a slot now; one that has to wait is woken later."""
        if key in self._acquired:
            return True
        now = self._clock()
        taken = sum(now - since < SLOT_SECONDS for since in self._acquired.values())
        if taken >= self._limit:
            self._waiting[key] = None
            return False
        self._waiting.pop(key, None)
        self._acquired[key] = now
        return True

    def holds(self, key: Key) -> bool:
        return key in self._acquired

    def release(self, key: Key) -> None:
        """The pool is done, or gone: the next one that waits is woken."""
        self._waiting.pop(key, None)
        if self._acquired.pop(key, None) is not None:
            for waiting in list(self._waiting)[: self._limit]:
                self._wake(waiting)

    def waiting(self) -> int:
        return len(self._waiting)
