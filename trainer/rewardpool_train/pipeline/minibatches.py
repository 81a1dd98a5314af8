"""Assemble the next mini-batch: wait for its groups and, with dynamic sampling, replace those without a gradient."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Generic

from rewardpool._score_waits import ScoreWaits
from rewardpool_train.pipeline import staleness
from rewardpool_train.pipeline.condition import TaskCondition
from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling, Selection, needs_round, select
from rewardpool_train.pipeline.group_buffer import OpenGroup
from rewardpool_train.pipeline.group_tracker import GroupTracker
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import Announcer, MiniBatch, P, R
from rewardpool_train.pipeline.rollout_driver import RolloutDriver
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan, choose_within_step
from rewardpool_train.pipeline.tasks import ScoreTasks
from rewardpool_train.pipeline.times import Stopwatch


class MiniBatches(Generic[P, R]):
    """Assembles the mini-batches of a run, one after the other.

    Args:
        sampling: None trains on all groups.
        scores: Scores that are in progress; counted in the error at a deadline.
        condition: Notified when a group is complete.
        watch: Measures the time in which the learner waits for a mini-batch.
        waits: Records when it waits for nothing but scores: rollouts of enough groups have ended.
    """

    def __init__(
        self,
        plan: Plan,
        overlap: Overlap,
        sampling: DynamicSampling | None,
        *,
        tracker: GroupTracker[P, R],
        driver: RolloutDriver[P, R],
        scores: ScoreTasks[P, R],
        condition: TaskCondition,
        watch: Stopwatch,
        waits: ScoreWaits,
        announcer: Announcer | None,
        deadline_seconds: float,
    ) -> None:
        self._plan = plan
        self._overlap = overlap
        self._schedule = SCHEDULES[overlap.schedule]
        self._sampling = sampling
        self._tracker = tracker
        self._driver = driver
        self._scores = scores
        self._condition = condition
        self._watch = watch
        self._waits = waits
        self._announcer = announcer
        self._deadline_seconds = deadline_seconds
        self._dropped: list[OpenGroup[P, R]] = []  # since the last mini-batch

    async def next(self, step: int, number: int) -> MiniBatch[P, R]:
        """Return a step's next mini-batch, and remove its groups from the buffer.

        Raises:
            TimeoutError: The scores did not come within the deadline.
        """
        rounds = self._tracker.rounds
        found, waited_seconds = await self._wait_for_selection(step)
        while await self._needs_round(found):
            await self._replace(found.useless, step)
            found, seconds = await self._wait_for_selection(step)
            waited_seconds += seconds
        dropped, self._dropped = self._dropped, []
        return MiniBatch(
            step=step,
            number=number,
            version=self._tracker.trained,
            groups=[group.rated() for group in self._tracker.start_training(found.chosen)],
            rest=[group.rolled() for group in self._groups_in_step(step)],
            waited_seconds=waited_seconds,
            dropped=[group.rated() for group in dropped],
            sampling_rounds=self._tracker.rounds - rounds,
        )

    async def _wait_for_selection(self, step: int) -> tuple[Selection, float]:
        """Wait until the next mini-batch is known; return it with the seconds that this took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            with self._watch.running(), self._waiting(), self._waits.waiting() as wait:
                async with asyncio.timeout(self._deadline_seconds):
                    while (found := self._select(step)) is None:
                        await self._condition.wait()
                wait.begin = max(wait.begin, self._rolled_out_at())
        except TimeoutError:
            raise TimeoutError(
                f"{len(self._scores)} samples have no outcome after {self._deadline_seconds:g} s; "
                "raise step_deadline_seconds, or give the pool more replicas"
            ) from None
        return found, loop.time() - began

    def _rolled_out_at(self) -> float:
        """Return when rollouts of enough groups for a mini-batch had ended; before that not only scores are missing."""
        times = sorted(group.rolled_at for group in self._tracker.buffer.rolled_out())
        size = self._plan.groups_per_minibatch
        return times[size - 1] if len(times) >= size else -math.inf

    def _select(self, step: int) -> Selection | None:
        order = self._overlap.order
        if self._schedule.disaggregated:
            self._drop_useless()
            chosen = staleness.choose(
                self._tracker.buffer.groups(),
                self._plan,
                version=self._tracker.trained,
                max_staleness=self._overlap.max_staleness,
                order=order,
            )
        elif self._sampling is not None and self._tracker.rounds < self._sampling.rounds:
            return select(self._groups_in_step(step), self._schedule, self._plan, order=order)
        else:
            chosen = choose_within_step(self._groups_in_step(step), self._schedule, self._plan, order=order)
        return None if chosen is None else Selection(chosen=chosen)

    async def _needs_round(self, found: Selection) -> bool:
        """Return whether there is another round; all ranks that have rounds left agree on it."""
        sampling, done = self._sampling, self._tracker.rounds
        if sampling is None or done >= sampling.rounds or self._schedule.disaggregated:
            return False
        missing = max(found.missing, await sampling.most(found.missing))
        return needs_round(missing=missing, done=done, at_most=sampling.rounds)

    async def _replace(self, indices: Sequence[int], step: int) -> None:
        dropped, tasks = self._tracker.replace(indices, step)
        self._dropped += dropped
        await self._driver.roll_out(tasks, announced=False)  # the step's burst continues

    def _drop_useless(self) -> None:
        """Drop complete groups without a gradient, up to the limit per mini-batch; the driver begins others."""
        if self._sampling is None:
            return
        left = self._sampling.rounds * self._plan.groups_per_minibatch - len(self._dropped)
        useless = [group.index for group in self._tracker.buffer.groups() if not group.informative][:left]
        if useless:
            self._dropped += self._tracker.drop(useless)
            self._condition.notify_all()

    def _groups_in_step(self, step: int) -> list[OpenGroup[P, R]]:
        return [] if self._schedule.disaggregated else self._tracker.buffer.in_step(step)

    def _waiting(self) -> AbstractContextManager[None]:
        return nullcontext() if self._announcer is None else self._announcer.waiting()
