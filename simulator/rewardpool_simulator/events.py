"""The queue of scheduled calls, by time, and by order of entry where times are equal.

A run makes a hundred thousand requests. A heap of calls is several times faster than a library with a generator per
request, and no longer to write.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")


class Events:
    """The simulated clock, with the calls that are scheduled on it."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the trace began."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._entered = 0

    def call_at(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call at a time, or now where that has passed."""
        self._entered += 1
        heappush(self._heap, (max(seconds, self.now), self._entered, call, arguments))

    def call_later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call in `seconds`, which must not be negative."""
        self._entered += 1
        heappush(self._heap, (self.now + seconds, self._entered, call, arguments))

    def call_each_later(self, items: Sequence[tuple[float, T]], call: Callable[[T], None]) -> None:
        """Schedule a call with each item, in so many seconds from now, which must ascend.

        The order is that of a `call_later` for each item, also where times are equal.
        """
        # Only the next item is in the heap: a job's whole step would make every push and pop slower.
        began, first = self.now, self._entered + 1
        self._entered += len(items)
        further = enumerate(items, first)

        def enter_next() -> None:
            for number, (seconds, item) in further:
                heappush(self._heap, (began + seconds, number, run, (item,)))
                return

        def run(item: T) -> None:
            enter_next()
            call(item)

        enter_next()

    def run_next(self) -> bool:
        """Run the next call and return True, or return False where none is scheduled."""
        if not self._heap:
            return False
        self.now, _, call, arguments = heappop(self._heap)
        call(*arguments)
        return True

    def run_until(self, seconds: float) -> None:
        """Run calls up to the first one at `seconds` or later, that one included; one must be scheduled."""
        heap = self._heap
        while self.now < seconds:
            self.now, _, call, arguments = heappop(heap)
            call(*arguments)
