"""Between the rollout and the update: responses go to the reward pool as they end, complete groups come back.

The pool scores on a thread of its own. Its answers land in a queue, and `take` turns them into groups when the actor
asks for some: a group is ready as soon as its own scores are, whatever the others are waiting for.
"""

import concurrent.futures
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rewardpool.actor.data import Rollout
from rewardpool.actor.groups import Group, GroupBoard, Order
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
    """

    submitted: int = 0
    scored: int = 0
    constants: int = 0
    unscored: int = 0

    @property
    def lost(self) -> int:
        """Samples that nothing was heard of."""
        return self.submitted - self.scored - self.constants - self.unscored

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


class GroupScoring:
    """The scores of one step on one rank."""

    def __init__(
        self,
        pool: Scorer,
        *,
        groups: int,
        size: int,
        to_sample: Callable[[Rollout], Sample],
        tally: Tally,
        order: Order = "arrival",
    ) -> None:
        self._pool = pool
        self._to_sample = to_sample
        self._tally = tally
        self._board = GroupBoard(groups=groups, size=size, order=order)
        self._answers: queue.SimpleQueue[tuple[Rollout, concurrent.futures.Future[Outcome]]] = queue.SimpleQueue()

    def submit(self, rollout: Rollout) -> None:
        """Hand a rollout to the pool; returns at once."""
        self._tally.submitted += 1
        future = self._pool.submit(self._to_sample(rollout))
        # Called on the pool's thread, which must not be kept: the queue takes it from there.
        future.add_done_callback(lambda answered: self._answers.put((rollout, answered)))

    def take(self, count: int, *, deadline_seconds: float, clock: Callable[[], float] = time.monotonic) -> list[Group]:
        """Return the next `count` complete groups; waits for scores only as long as there are fewer.

        Raises:
            SampleError: A sample has no score and the failure policy is `raise`.
            PoolError: The pool cannot be used.
            TimeoutError: The scores did not come within the deadline.
        """
        deadline = clock() + deadline_seconds
        while (groups := self._board.take(count)) is None:
            try:
                rollout, answered = self._answers.get(timeout=max(0.0, deadline - clock()))
            except queue.Empty:
                raise TimeoutError(
                    f"{self._tally.lost} samples have no outcome after {deadline_seconds:g} s; "
                    "raise step_deadline_seconds, or give the pool more replicas"
                ) from None
            self._board.put(rollout.group, rollout.member, self._tally.enter(answered.result()))
        return groups
