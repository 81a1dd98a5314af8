"""Seconds from the making of workers to their first score, as far as it was watched. No clock, no calls.

By the watcher's own clock: that of the API server, which dates pods, need not agree with it. So a worker that was there
at the first look is left out, and so is one whose process was started again before it answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rewardpool_control.snapshot import Worker


@dataclass(frozen=True, kw_only=True)
class _Watched:
    begun: float | None
    """Monotonic seconds; None for one that was not watched from its making on."""
    seconds: float | None = None


class StartTimes:
    """Start times of one pool's workers, kept from pass to pass."""

    def __init__(self) -> None:
        # On one machine a new worker may have the name of one that is gone.
        self._watched: dict[tuple[str, datetime], _Watched] | None = None

    def measure(self, workers: Sequence[Worker], *, now: float) -> tuple[Worker, ...]:
        """The workers with the seconds that their start took, as of `now` in monotonic seconds."""
        self._watched = {(worker.name, worker.created): self._watch(worker, now=now) for worker in workers}
        return tuple(
            replace(worker, start_seconds=watched.seconds)
            for worker, watched in zip(workers, self._watched.values(), strict=True)
        )

    def _watch(self, worker: Worker, *, now: float) -> _Watched:
        known = (self._watched or {}).get((worker.name, worker.created))
        if known is None:
            return _Watched(begun=None if worker.answering or self._watched is None else now)
        if known.begun is None or known.seconds is not None:
            return known
        if worker.restarts:
            return _Watched(begun=None)
        return replace(known, seconds=now - known.begun) if worker.answering else known
