"""Announces to pools when rollouts begin and end where the trainer says nothing of them to a reward: samples just come.

A rollout begins with the first sample after a quiet time, and has ended when nothing came, or was on its way, for
`QUIET_SECONDS`. A trainer that generates all the time is in one rollout that never ends, which is right.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

# The last long responses of a rollout come one by one; in a pause of theirs the rollout is not over.
QUIET_SECONDS = 30.0


class Announced(Protocol):
    def rollout(self) -> None:
        """Samples will come."""

    def update(self) -> None:
        """End the burst: no more samples for now."""


class Bursts:
    """Counts the samples in flight on one event loop, and announces by them."""

    def __init__(self, demands: Iterable[Announced], *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._demands = tuple(demands)
        self._quiet_seconds = quiet_seconds
        self._in_flight = 0
        self._is_rollout = False
        self._quiet: asyncio.TimerHandle | None = None

    @contextmanager
    def sample(self) -> Iterator[None]:
        """Within this block a sample is in flight."""
        self._begin()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._quiet = asyncio.get_running_loop().call_later(self._quiet_seconds, self._over)

    def _begin(self) -> None:
        self._in_flight += 1
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        if not self._is_rollout:
            self._is_rollout = True
            for demand in self._demands:
                demand.rollout()

    def _over(self) -> None:
        self._quiet = None
        self._is_rollout = False
        for demand in self._demands:
            demand.update()
