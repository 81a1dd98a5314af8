"""Tells a pool that refuses everything from samples that fail each for itself. Pure.

    answered by the pool  -> it is proven: what fails is a sample
    never answered        -> 404, 405 and their like are the address: an error of the pool, at the first of them
    N equal failures in a row, no answer in between -> an error of the pool

A failure policy is for samples. Under `{constant: 0}` a wrong path would otherwise give every sample of the job the
score 0, and nothing would fail. An answer is a score, or a worker's own word on a sample in the form of the contract.
"""

from rewardpool.errors import InvalidSampleError, PoolError, PoolNotReadyError, PoolRefusesError, SampleError

NOBODY_THERE = ("unreachable", "waiting")
"""Kinds of `RetryableError` after which nothing is known of who is at the address."""


class Breaker:
    """Counts equal failures. Any answer begins anew."""

    def __init__(self, threshold: int) -> None:
        """`threshold` is how many equal failures in a row are the pool's."""
        self._threshold = threshold
        self._last = ""
        self._count = 0
        self.is_proven = False
        """Whether the pool ever answered."""

    def answered(self) -> None:
        """The pool answered a sample."""
        self.is_proven = True
        self._count = 0

    def refused(self, error: SampleError, *, where: str) -> SampleError | PoolError:
        """The error of a sample that the server refused with a HTTP status, or that of the pool in its place.

        Args:
            error: Of the sample; with `status`.
            where: What answers there, for messages.
        """
        opened = self._counted(f"HTTP {error.status}")
        if not self.is_proven and not isinstance(error, InvalidSampleError):
            return PoolRefusesError(f"{where} is no reward pool, or not the path or model that it serves: {error}")
        if opened:
            return PoolRefusesError(
                f"{where} refused {self._threshold} samples in a row in the same way and scored none; last: {error}"
            )
        return error

    def too_late(self, error: SampleError, *, kind: str, where: str) -> SampleError | PoolError:
        """The error of a sample whose deadline passed, or of the pool if that never answered; `kind` is its last."""
        if self.is_proven or kind not in NOBODY_THERE or not self._counted(f"deadline, {kind}"):
            return error
        return PoolNotReadyError(
            f"{where} answered nothing within the deadlines of {self._threshold} samples; last: {error}"
        )

    def _counted(self, failure: str) -> bool:
        self._count = self._count + 1 if failure == self._last else 1
        self._last = failure
        return self._count >= self._threshold
