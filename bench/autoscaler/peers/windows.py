"""What peers remember: samples of the last while, and the extremes among them.

Three kinds, because the peers differ in what a gap means: `Samples` forgets only when something new comes, `Seconds`
has one place for each second and takes a gap for zeros, `Extreme` keeps a maximum or a minimum in O(1) a call.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

SLACK_SECONDS: Final = 1e-6
"""Times are sums of floats: what is this near to the end of a window is at its end."""


class Samples:
    """The mean of what was recorded within the last `seconds`, as AIBrix keeps it.

    A sample that is exactly `seconds` old still counts. Without a new record nothing is forgotten.
    """

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, float]] = deque()

    def record(self, now: float, value: float) -> None:
        """Add a sample, then forget the old ones."""
        self._samples.append((now, value))
        while now - self._samples[0][0] > self._seconds + SLACK_SECONDS:
            self._samples.popleft()

    @property
    def mean(self) -> float:
        """Of all samples alike, 0 without any."""
        return sum(value for _, value in self._samples) / len(self._samples) if self._samples else 0.0


class Seconds:
    """The mean over the last `seconds`, one value a second, as Knative keeps it.

    Seconds are counted by the caller, from 0. Until the window is full the mean is over the seconds since the first
    record; a second without a record counts as 0; after a whole window without one, all begins anew.
    """

    def __init__(self, *, seconds: int) -> None:
        self._seconds = seconds
        self._values: deque[int] = deque(maxlen=seconds)
        self._last: int | None = None

    def record(self, second: int, value: int) -> None:
        """Give a second its value."""
        if self._last is None or second - self._last >= self._seconds:
            self._values.clear()
        else:
            self._values.extend([0] * (second - self._last - 1))
        self._values.append(value)
        self._last = second

    def is_empty(self, second: int) -> bool:
        """Whether nothing was recorded for longer than the window."""
        return self._last is None or second - self._last > self._seconds

    def mean(self, second: int) -> float:
        """Over the window that ends with this second; 0 after a whole window without a record."""
        if self._last is None or second - self._last >= self._seconds:
            return 0.0
        # Values are as old as they are: what came long before a gap leaves the window during the gap.
        kept = min(len(self._values), self._seconds - (second - self._last))
        return sum(list(self._values)[-kept:]) / kept


class Extreme:
    """The largest (`max`) or smallest (`min`) of what was recorded less than `seconds` ago.

    A value that is exactly `seconds` old is gone. Real controllers work for some milliseconds in each period, so what
    they recorded a whole number of periods ago is always a little older than that.
    """

    def __init__(self, of: Callable[[int, int], int], *, seconds: float) -> None:
        self._of = of
        self._seconds = seconds
        self._candidates: deque[tuple[float, int]] = deque()

    def record(self, now: float, value: int) -> int:
        """Add a value; the extreme of the window with it."""
        # A value that is not beyond a later one can never be the extreme again.
        while self._candidates and self._of(self._candidates[-1][1], value) == value:
            self._candidates.pop()
        self._candidates.append((now, value))
        while now - self._candidates[0][0] >= self._seconds - SLACK_SECONDS:
            self._candidates.popleft()
        return self._candidates[0][1]
