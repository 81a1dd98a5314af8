"""What happens when: a queue of calls, by time, and by order of entry where times are equal.

simpy would do it with a generator per request; at a hundred thousand requests per run, a heap of calls is several times
faster and no longer to write.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")


class Events:
    """The simulated time, and what is still to happen in it."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the trace began."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._entered = 0

    def at(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call at a time, or now where that has passed."""
        self._entered += 1
        heappush(self._heap, (max(seconds, self.now), self._entered, call, arguments))

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call so many seconds from now; they are not negative."""
        self._entered += 1
        heappush(self._heap, (self.now + seconds, self._entered, call, arguments))

    def after_each(self, items: Sequence[tuple[float, T]], call: Callable[[T], None]) -> None:
        """Make a call with each item, so many seconds from now, in ascending order.

        As `after` for each of them, also where times are equal, but the queue has no more than the next of them.
        """
        began, first = self.now, self._entered + 1
        self._entered += len(items)
        further = enumerate(items, first)

        def enter_next() -> None:
            for number, (seconds, item) in further:
                heappush(self._heap, (began + seconds, number, happens, (item,)))
                return

        def happens(item: T) -> None:
            enter_next()
            call(item)

        enter_next()

    def next(self) -> bool:
        """Let the next thing happen; False where there is none."""
        if not self._heap:
            return False
        self.now, _, call, arguments = heappop(self._heap)
        call(*arguments)
        return True

    def go_on(self, until: float) -> None:
        """Let things happen up to the first one at this time or later, that one included; something always is to."""
        heap = self._heap
        while self.now < until:
            self.now, _, call, arguments = heappop(heap)
            call(*arguments)
