"""Circuit breaker: tell a broken pool from samples that fail each for itself. Pure.

    no score yet       -> nothing is proven: N failures of one kind are the pool's, and so is the first 404, 405 or the
                          like; nothing gets a penalty before the first score
    a score            -> the counts begin anew
    scores before      -> N failures of one kind with no score in between are the pool's; of kinds that a sample may
                          have by itself (the function raised, the sample is malformed) `PATIENCE` times as many, since
                          all rollouts of one bad prompt fail in a row; those of the policy never

A failure policy is for samples. Without this, a broken pool under `skip` would leave a job with nothing to train on,
and nothing would fail. Only a score proves a pool: a worker that answers every sample with an error of the contract is
as broken as one that answers 500.
"""

from collections import Counter
from collections.abc import Callable

from rewardpool.errors import (
    BrokenPoolError,
    DeadlineError,
    InvalidSampleError,
    PoolError,
    PoolNotReadyError,
    SampleError,
)

PATIENCE = 4
"""Times as many failures that a sample may have by itself are taken from a pool that has scored."""
NOBODY_THERE = ("unreachable", "waiting")
"""Kinds of failure after which nothing is known of what is at the address."""

Settled = Callable[[PoolError | None], None]


class Breaker:
    """Counts final failures by kind; a score begins anew."""

    def __init__(self, threshold: int) -> None:
        """`threshold` is how many failures of one kind without a score in between are the pool's."""
        self._threshold = threshold
        self._failures: Counter[str] = Counter()
        self._waiting: dict[object, Settled] = {}
        self.is_proven = False
        """Whether a score ever came."""

    def scored(self) -> None:
        """Take in a score."""
        self._failures.clear()
        if not self.is_proven:
            self.is_proven = True
            self._settle(None)

    def failed(self, error: SampleError, *, where: str) -> SampleError | PoolError:
        """Return the error of a sample, or that of the pool in its place.

        Args:
            error: Of the sample, which has failed for good.
            where: What failed, for messages.
        """
        self._failures[error.kind] += 1
        failure = self._pool_error(error, where)
        if failure is None:
            return error
        self._settle(failure)
        return failure

    def when_proven(self, key: object, settled: Settled) -> None:
        """Call back once: with None at the first score, or with the error that opens the breaker before it."""
        self._waiting[key] = settled

    def forget(self, key: object) -> None:
        """Do not call back."""
        self._waiting.pop(key, None)

    def _pool_error(self, error: SampleError, where: str) -> PoolError | None:
        refused = error.status is not None
        if refused and not self.is_proven and not isinstance(error, InvalidSampleError):
            return BrokenPoolError(f"{where} is not a reward pool, or not the path or model that it serves: {error}")
        limit = self._threshold
        if self.is_proven and error.fault == "policy":
            return None
        if self.is_proven and error.fault == "verifier" and not refused:
            limit *= PATIENCE
        count = self._failures[error.kind]
        if count < limit:
            return None
        since = "since its last score" if self.is_proven else "and scored none"
        problem = f"{where} failed {count} samples by {error.kind} ({error.fault}) {since}; last: {error}"
        if isinstance(error, DeadlineError) and error.kind in NOBODY_THERE:
            return PoolNotReadyError(problem)
        return BrokenPoolError(problem)

    def _settle(self, error: PoolError | None) -> None:
        waiting, self._waiting = self._waiting, {}
        for settled in waiting.values():
            settled(error)
