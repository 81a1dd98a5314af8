"""Drive the rollouts of a run: groups that have begun are sampled, and each rollout that ends is submitted for its
score.

Where rollouts have devices of their own, this also decides when groups begin: when there is capacity for them.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from typing import Generic, NoReturn

from rewardpool_train.pipeline import staleness
from rewardpool_train.pipeline.condition import TaskCondition
from rewardpool_train.pipeline.group_tracker import GroupTracker
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import Announcer, GroupTask, P, R, Rollouts
from rewardpool_train.pipeline.schedule import Plan
from rewardpool_train.pipeline.tasks import ScoreTasks
from rewardpool_train.pipeline.times import Stopwatch

log = logging.getLogger(__name__)


class RolloutDriver(Generic[P, R]):
    """Rolls out groups.

    Args:
        scores: Gets each rollout as soon as it ends.
        tasks: Task group of the run, which an error here ends.
        watch: Measures the time in which something is rolled out.
    """

    def __init__(
        self,
        rollouts: Rollouts[P, R],
        tracker: GroupTracker[P, R],
        scores: ScoreTasks[P, R],
        *,
        tasks: asyncio.TaskGroup,
        watch: Stopwatch,
        announcer: Announcer | None,
    ) -> None:
        self._rollouts = rollouts
        self._tracker = tracker
        self._scores = scores
        self._tasks = tasks
        self._watch = watch
        self._announcer = announcer
        self._running: set[asyncio.Task[None]] = set()

    async def roll_out(self, tasks: Sequence[GroupTask[P]], *, announced: bool = True) -> None:
        """Roll out groups that have begun; return when all of their rollouts have ended.

        Args:
            announced: Whether this rollout is one of the cadence that the announcer makes known.

        Raises:
            RuntimeError: The engine returned before all of them ended.
        """
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def on_end(task: GroupTask[P], member: int, rollout: R) -> None:
            if threading.get_ident() == thread:
                self._on_rollout(task, member, rollout)
            else:  # in the order of the calls, and before the end of a `roll_out` whose work is done on that thread
                loop.call_soon_threadsafe(self._on_rollout_from_thread, task, member, rollout)

        if announced and self._announcer is not None:
            self._announcer.rollout()
        with self._watch.running():
            await self._rollouts.roll_out(tasks, on_end)
        for group in self._tracker.buffer.select(task.index for task in tasks):
            if not group.is_rolled_out:
                ended = len(group.rollouts)
                raise RuntimeError(
                    f"roll_out returned with {ended} of {group.task.size} rollouts of group {group.index}"
                )

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Start a task that `cancel` cancels."""
        running = self._tasks.create_task(work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        for running in self._running:
            running.cancel()

    def _on_rollout(self, task: GroupTask[P], member: int, rollout: R) -> None:
        group = self._tracker.buffer.add_rollout(task.index, member, rollout)
        if group.is_rolled_out:
            group.rolled_at = asyncio.get_running_loop().time()
        self._scores.submit(group, member)

    def _on_rollout_from_thread(self, task: GroupTask[P], member: int, rollout: R) -> None:
        try:
            self._on_rollout(task, member, rollout)
        except ValueError as error:  # no caller could catch it: this is a callback of the event loop
            failure = _fail(error)
            try:
                self._tasks.create_task(failure)
            except RuntimeError:  # the run is ending already, with an earlier error
                failure.close()
                log.warning("while the pipeline ends: %s", error)


class DisaggregatedDriver(RolloutDriver[P, R]):
    """A driver for rollouts with devices of their own."""

    async def run(self, plan: Plan, overlap: Overlap, condition: TaskCondition) -> None:
        """Begin groups when there is capacity, until cancelled: a group may be dropped up to the end."""
        at_once = asyncio.Semaphore(overlap.rollouts_at_once)

        async def roll_out(tasks: list[GroupTask[P]]) -> None:
            try:
                await self.roll_out(tasks)
            finally:
                at_once.release()

        while True:
            await at_once.acquire()
            while not (wanted := self._next_indices(plan, overlap)):
                await condition.wait()  # for an update, whose wait for complete groups has the deadline
            steps = {index: min(index // plan.groups_per_step, plan.steps - 1) for index in wanted}
            self.start(roll_out(self._tracker.begin(steps)))

    def _next_indices(self, plan: Plan, overlap: Overlap) -> list[int]:
        tracker = self._tracker
        if tracker.published < 0:
            return []
        free = staleness.capacity(
            plan,
            # Groups of an update in progress are out of the buffer, and not trained on yet.
            outstanding=tracker.outstanding,
            version=tracker.trained,
            published=tracker.published,
            max_staleness=overlap.max_staleness,
        )
        return tracker.unbegun()[: min(free, overlap.groups_per_rollout or plan.groups_per_step)]


async def _fail(error: Exception) -> NoReturn:
    raise error
