"""What happens when: a queue of calls, by time, and by order of entry where times are equal.

simpy would do it with a generator per request; at a hundred thousand requests per run, a heap of calls is several times
faster and no longer to write.
"""

import heapq
from collections.abc import Callable
from typing import Any


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
        heapq.heappush(self._heap, (max(seconds, self.now), self._entered, call, arguments))

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call so many seconds from now."""
        self.at(self.now + seconds, call, *arguments)

    def next(self) -> bool:
        """Let the next thing happen; False where there is none."""
        if not self._heap:
            return False
        self.now, _, call, arguments = heapq.heappop(self._heap)
        call(*arguments)
        return True
