"""Where the time of a step went."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """The time from the end of a step to the end of the next one; from the run's begin, for the first.

    With rollouts ahead, what is rolled out in it is a later step. Rollout and update overlap where they are apart.

    Attributes:
        step: From 0.
        total_seconds: All of it.
        rollout_seconds: In which something was rolled out.
        wait_seconds: In which the learner had nothing to do before a mini-batch was complete, and nothing was rolled
            out on its devices: what rewards cost.
        update_seconds: Training and publishing.
    """

    step: int
    total_seconds: float
    rollout_seconds: float
    wait_seconds: float
    update_seconds: float


class Stopwatch:
    """Adds up the seconds in which at least one of its `running` blocks runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._running = 0
        self._seconds = 0.0
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the seconds of the block."""
        self._add()
        self._running += 1
        try:
            yield
        finally:
            self._add()
            self._running -= 1

    def lap(self) -> float:
        """Return the seconds since the last lap, and start a new one; a block may go on over it."""
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
        """Return what the step took, which ends now."""
        now = self._clock()
        total, self._since = now - self._since, now
        return StepTimes(
            step=step,
            total_seconds=total,
            rollout_seconds=self.rollout.lap(),
            wait_seconds=self.wait.lap(),
            update_seconds=self.update.lap(),
        )
