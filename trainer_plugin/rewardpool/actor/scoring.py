"""From a rollout to its score: what a pipeline's `Score` is, where a reward pool gives it."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rewardpool.actor.data import Prompt, Rollout
from rewardpool.pipeline.parts import GroupTask
from rewardpool.sample import Outcome, Sample, Scored


class Scorer(Protocol):
    """What is needed of a `BlockingPool`."""

    def submit(self, sample: Sample) -> concurrent.futures.Future[Outcome]:
        """Start scoring a sample."""
        ...


@dataclass(kw_only=True)
class Tally:
    """What became of every sample of a job; filled where it happens, so that `lost` is a finding, not an assumption.

    Attributes:
        submitted: Samples handed to the pool.
        scored: Those that came back with a score from a worker.
        constants: Those that came back with the constant that the failure policy asks for.
        unscored: Those that came back as failed, which their group is trained without.
        given_up: Those that the job itself gave up, because it ended before they were trained on.
    """

    submitted: int = 0
    scored: int = 0
    constants: int = 0
    unscored: int = 0
    given_up: int = 0

    @property
    def lost(self) -> int:
        """Samples that nothing was heard of."""
        return self.submitted - self.scored - self.constants - self.unscored - self.given_up

    def enter(self, outcome: Outcome) -> float | None:
        """Count one outcome and return its score, or None."""
        if not isinstance(outcome, Scored):
            self.unscored += 1
            return None
        if outcome.constant:
            self.constants += 1
        else:
            self.scored += 1
        return outcome.value


class PoolScore:
    """Asks a pool for the score of each rollout.

    Args:
        pool: That is asked; it scores on a thread of its own.
        to_sample: Returns what it is given for a rollout.
        tally: Counts.
    """

    def __init__(
        self, pool: Scorer, *, to_sample: Callable[[GroupTask[Prompt], int, Rollout], Sample], tally: Tally
    ) -> None:
        self._pool = pool
        self._to_sample = to_sample
        self._tally = tally

    async def __call__(self, task: GroupTask[Prompt], member: int, rollout: Rollout) -> float | None:
        """Return the rollout's score; None where the failure policy leaves it unscored.

        Raises:
            SampleError: It has no score and the failure policy is `raise`.
            PoolError: The pool cannot be used.
        """
        self._tally.submitted += 1
        answer = self._pool.submit(self._to_sample(task, member, rollout))
        try:
            outcome = await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            self._tally.given_up += 1
            raise
        return self._tally.enter(outcome)
