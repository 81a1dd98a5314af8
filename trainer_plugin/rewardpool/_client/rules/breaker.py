"""Circuit breaker: distinguishes a broken pool from samples that fail each for itself. Pure.

    no score yet       -> nothing is proven: N failures of one kind are the pool's, and so is the first 404, 405 or the
                          like. What is to get a penalty waits while others are under way, any of which may be
                          scored, and is unscored when the last one of them was not
    a score            -> the counts begin anew
    scores before      -> N failures of one kind with no score in between are the pool's; of kinds that a sample may
                          have by itself (the function raised, the sample is malformed) `PATIENCE` times as many, since
                          all rollouts of one bad prompt fail in a row; those of the policy never

A failure policy is for samples. Without this, a broken pool under `skip` would leave a job with nothing to train on,
and nothing would fail. Only a score proves a pool: a worker that answers every sample with an error of the contract is
as broken as one that answers 500.
"""

import asyncio
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

# After the first score the limit is this many times as high for failures that a sample may have by itself.
PATIENCE = 4
# Kinds of failure after which nothing is known of the server at the address.
NOBODY_THERE = ("unreachable", "waiting")

NOTHING_PROVEN = "before the first score nothing shows that the policy caused it, and there is no penalty"

# Called with the error that opened the breaker, or None; then `is_proven` says whether there is a penalty.
Settled = Callable[[PoolError | None], None]


class Breaker:
    """Counts final failures by kind; a score begins anew."""

    def __init__(self, threshold: int) -> None:
        """`threshold` is how many failures of one kind without a score in between are the pool's."""
        self._threshold = threshold
        self._failures: Counter[str] = Counter()
        self._under_way = 0
        self._waiting: list[Settled] = []
        self.is_proven = False

    def begun(self, samples: int = 1) -> None:
        self._under_way += samples

    def ended(self, samples: int = 1) -> None:
        """Count samples that have ended; to be called after `scored` or `failed`."""
        self._under_way -= samples
        self._settle_if_idle()

    def scored(self) -> None:
        self._failures.clear()
        if not self.is_proven:
            self.is_proven = True
            self._settle(None)

    def failed(self, error: SampleError, *, where: str) -> SampleError | PoolError:
        """Return the error of a sample, or that of the pool in its place."""
        self._failures[error.kind] += 1
        failure = self._pool_error(error, where)
        if failure is None:
            return error
        self._settle(failure)
        return failure

    def when_settled(self, settled: Settled) -> None:
        """Call back once, now or later: at the first score, when it opens, or when nothing is under way."""
        self._waiting.append(settled)
        self._settle_if_idle()

    async def settled(self) -> PoolError | None:
        """Return at that moment, with the error that opened it if one did."""
        if self.is_proven:
            return None
        end: asyncio.Future[PoolError | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(lambda failure: None if end.done() else end.set_result(failure))
        await asyncio.sleep(0)  # those that came with it begin
        self._settle_if_idle()
        return await end

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

    def _settle_if_idle(self) -> None:
        if self.is_proven or not self._under_way:
            self._settle(None)

    def _settle(self, error: PoolError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            settled(error)
