"""`Pipeline`: execute the operations of `schedule`, `staleness` and `dynamic_sampling` on one event loop.

Each score is a task, which begins when its rollout ends (for a group, when its last rollout ends) and runs while the
devices work. Everything else is one sequence of operations, or two under `fully_async`. The first error of any of them
ends the run: the others are cancelled and awaited, and the error is raised unchanged.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic

from rewardpool._score_waits import ScoreWaits
from rewardpool_train.pipeline.condition import TaskCondition
from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling
from rewardpool_train.pipeline.group_tracker import GroupTracker
from rewardpool_train.pipeline.minibatches import MiniBatches
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import Announcer, Learner, P, R, Rollouts, Scoring
from rewardpool_train.pipeline.rollout_driver import DisaggregatedDriver, RolloutDriver
from rewardpool_train.pipeline.schedule import SCHEDULES, Done, Plan, Publish, RollOut, Train, next_operation
from rewardpool_train.pipeline.state import PipelineState
from rewardpool_train.pipeline.tasks import ScoreTasks, first_error
from rewardpool_train.pipeline.times import StepClock, StepTimes


class Pipeline(Generic[P, R]):
    """One run of a job. Call `run` once; the other methods may be called meanwhile, on the same event loop."""

    def __init__(
        self,
        *,
        plan: Plan,
        prompts: Callable[[int], P],
        rollouts: Rollouts[P, R],
        score: Scoring[P, R],
        learner: Learner[P, R],
        overlap: Overlap | None = None,
        sampling: DynamicSampling | None = None,
        deadline_seconds: float = 900.0,
        announcer: Announcer | None = None,
        waits: ScoreWaits | None = None,
        on_update: Callable[[int], Awaitable[None]] | None = None,
        on_step: Callable[[StepTimes], Awaitable[None]] | None = None,
        resume: PipelineState[R] | None = None,
    ) -> None:
        """Create a run.

        Args:
            plan: Number of steps, groups and responses.
            prompts: Called with a group's index, returns its prompt; the same one after a resume. Indices exceed the
                groups of the plan when groups are replaced.
            score: Scores a rollout, a whole group, or first the one and then the other.
            overlap: Schedule and its settings; by default, mini-batches are trained as soon as they are complete.
            sampling: Rule by which groups without a gradient are replaced; None trains on them.
            deadline_seconds: Deadline for a mini-batch to be complete once the learner waits for it.
            announcer: Announces rollouts and updates to the reward servers.
            waits: Records when the learner waits for nothing but scores; its clock is that of the event loop.
            on_update: Called with the new version after each update; a place to write a checkpoint with `state`.
            on_step: Called after each step, when its weights are published; a place for `end`.
            resume: State to resume from; the learner must already have the weights of that moment.

        Raises:
            ValueError: `resume` is from another job.
        """
        self._plan = plan
        self._rollouts = rollouts
        self._score = score
        self._learner = learner
        self._overlap = overlap or Overlap()
        self._schedule = SCHEDULES[self._overlap.schedule]
        self._sampling = sampling
        self._deadline_seconds = deadline_seconds
        self._announcer = announcer
        self._waits = waits or ScoreWaits()
        self._on_update = on_update
        self._on_step = on_step
        self._tracker: GroupTracker[P, R] = GroupTracker(
            plan, prompts, is_informative=None if sampling is None else sampling.is_informative
        )
        if resume is not None:
            resume.check(self._overlap.schedule, plan)
            self._tracker.restore(resume)
        self._reported = self._tracker.trained // plan.minibatches_per_step
        self._is_ending = False
        self._condition = TaskCondition()
        self._clock: StepClock
        self._driver: RolloutDriver[P, R]
        self._minibatches: MiniBatches[P, R]

    @property
    def version(self) -> int:
        """Version of the policy: the number of mini-batches trained on."""
        return self._tracker.trained

    async def run(self) -> None:
        """Run all steps.

        Raises:
            TimeoutError: A mini-batch was not complete within the deadline.
            Exception: The first error of rollouts, score, learner or a callback; everything else was cancelled.
        """
        self._clock = StepClock(asyncio.get_running_loop().time)
        try:
            async with asyncio.TaskGroup() as tasks:
                scores = ScoreTasks(self._score, self._tracker.buffer, self._condition.notify_all, tasks=tasks)
                scores.resume()
                self._driver = self._start_driver(scores, tasks)
                self._minibatches = self._make_minibatches(scores)
                await self._run_operations()
                scores.cancel()
                self._driver.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    def end(self) -> None:
        """End the run before its next operation; unfinished rollouts and scores are cancelled.

        Called in `on_step`, this is the end of the step. `state` has what a resumed job still has to do.
        """
        self._is_ending = True

    def state(self) -> PipelineState[R]:
        """Return the outstanding groups; with the learner's weights of the same moment, this is a checkpoint.

        Raises:
            RuntimeError: The learner is in the middle of an update, so its weights are of no version.
        """
        return self._tracker.state(self._overlap.schedule)

    def _start_driver(self, scores: ScoreTasks[P, R], tasks: asyncio.TaskGroup) -> RolloutDriver[P, R]:
        kind = DisaggregatedDriver if self._schedule.disaggregated else RolloutDriver
        driver = kind(
            self._rollouts,
            self._tracker,
            scores,
            tasks=tasks,
            watch=self._clock.rollout,
            announcer=self._announcer,
        )
        if isinstance(driver, DisaggregatedDriver):
            driver.start(driver.run(self._plan, self._overlap, self._condition))
        return driver

    def _make_minibatches(self, scores: ScoreTasks[P, R]) -> MiniBatches[P, R]:
        return MiniBatches(
            self._plan,
            self._overlap,
            self._sampling,
            tracker=self._tracker,
            driver=self._driver,
            scores=scores,
            condition=self._condition,
            watch=self._clock.wait,
            waits=self._waits,
            announcer=self._announcer,
            deadline_seconds=self._deadline_seconds,
        )

    async def _run_operations(self) -> None:
        while True:
            operation = next_operation(
                self._schedule, self._plan, self._tracker.progress(), publish_every=self._overlap.publish_every
            )
            if not isinstance(operation, Publish):
                await self._report_step()
            if self._is_ending or isinstance(operation, Done):
                return
            await self._execute(operation)

    async def _execute(self, operation: RollOut | Train | Publish) -> None:
        match operation:
            case RollOut(step):
                await self._driver.roll_out(self._tracker.begin_step(step))
            case Train(step, number):
                await self._train(step, number)
            case Publish(version):
                with self._clock.update.running():
                    await self._learner.publish(version)
                self._tracker.published = version
                self._condition.notify_all()

    async def _train(self, step: int, number: int) -> None:
        minibatch = await self._minibatches.next(step, number)
        if self._announcer is not None and not self._schedule.disaggregated:
            self._announcer.update()
        with self._clock.update.running():
            await self._learner.train(minibatch)
        self._tracker.finish_training()
        self._condition.notify_all()
        if self._on_update is not None:
            await self._on_update(self._tracker.trained)

    async def _report_step(self) -> None:
        if self._tracker.trained // self._plan.minibatches_per_step == self._reported:
            return
        times = self._clock.lap(self._reported)
        self._reported += 1
        if self._on_step is not None:
            await self._on_step(times)
