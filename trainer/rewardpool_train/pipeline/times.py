"""Times of a step: its total, and the shares of rollout, waiting for rewards, and update."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Times between the ends of two steps; for the first step, from the run's begin.

    Under schedules with rollouts ahead, the rollout is that of a later step. Under `fully_async`, rollout and update
    overlap.

    Attributes:
        rollout_seconds: Time in which something was rolled out.
        wait_seconds: Time in which the learner waited for a mini-batch and its devices rolled nothing out: the cost of
            rewards.
    """

    step: int
    total_seconds: float
    rollout_seconds: float
    wait_seconds: float
    update_seconds: float


class Stopwatch:
    """Sums the seconds in which at least one of its `running` blocks is active."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._running = 0
        self._seconds = 0.0
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        self._add()
        self._running += 1
        try:
            yield
        finally:
            self._add()
            self._running -= 1

    def lap(self) -> float:
        """Return the seconds since the last lap, and start a new one; a block may continue across laps."""
        self._add()
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _add(self) -> None:
        now = self._clock()
        if self._running:
            self._seconds += now - self._since
        self._since = now


class StepClock:
    """The stopwatches of a run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.rollout = Stopwatch(clock)
        self.wait = Stopwatch(clock)
        self.update = Stopwatch(clock)
        self._clock = clock
        self._since = clock()

    def lap(self, step: int) -> StepTimes:
        now = self._clock()
        total, self._since = now - self._since, now
        return StepTimes(
            step=step,
            total_seconds=total,
            rollout_seconds=self.rollout.lap(),
            wait_seconds=self.wait.lap(),
            update_seconds=self.update.lap(),
        )
