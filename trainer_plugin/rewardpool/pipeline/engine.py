"""`Pipeline`: carries out what `schedule` and `staleness` say, on one event loop.

Rewards are tasks: a rollout's begins the moment it ends, and goes on through whatever the devices do. Everything else
is one sequence of operations, or two where rollout and training are apart. The first error of any of them ends the run:
the others are cancelled and waited for, and it is raised as it was.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, NoReturn

from rewardpool.pipeline import staleness
from rewardpool.pipeline.board import GroupBoard, OpenGroup
from rewardpool.pipeline.overlap import Overlap
from rewardpool.pipeline.parts import Announcer, GroupTask, Learner, MiniBatch, P, R, Rollouts, Score
from rewardpool.pipeline.schedule import (
    SCHEDULES,
    Done,
    Operation,
    Plan,
    Progress,
    Publish,
    RollOut,
    Train,
    choose_within_step,
    next_operation,
)
from rewardpool.pipeline.state import GroupState, PipelineState
from rewardpool.pipeline.tasks import ScoreTasks, first_error
from rewardpool.pipeline.times import StepClock, StepTimes


class Pipeline(Generic[P, R]):
    """One job's run. `run` is called once; everything else may be called while it runs, on its event loop."""

    def __init__(
        self,
        *,
        plan: Plan,
        prompts: Callable[[int], P],
        rollouts: Rollouts[P, R],
        score: Score[P, R],
        learner: Learner[P, R],
        overlap: Overlap | None = None,
        deadline_seconds: float = 900.0,
        announcer: Announcer | None = None,
        on_update: Callable[[int], Awaitable[None]] | None = None,
        on_step: Callable[[StepTimes], Awaitable[None]] | None = None,
        resume: PipelineState[R] | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            plan: How much is to be done.
            prompts: Called with a group's index, returns its prompt; the same one after a resume.
            rollouts: Where rollouts come from.
            score: Judges a rollout.
            learner: What is trained.
            overlap: How these follow each other; the default trains mini-batches as they are complete.
            deadline_seconds: For one mini-batch to be complete once the learner has nothing else to do.
            announcer: Is told what the job does.
            on_update: Called with the new version after each update: a place for a checkpoint with `state`.
            on_step: Called after each step, when its weights are published; a place for `end`.
            resume: The state that the job goes on from; the learner has its weights already.

        Raises:
            ValueError: `resume` is of another job.
        """
        self._plan = plan
        self._prompts = prompts
        self._rollouts = rollouts
        self._learner = learner
        self._overlap = overlap or Overlap()
        self._schedule = SCHEDULES[self._overlap.schedule]
        self._deadline_seconds = deadline_seconds
        self._announcer = announcer
        self._on_update = on_update
        self._on_step = on_step
        self._board: GroupBoard[P, R] = GroupBoard()
        self._begun = self._trained = self._published = 0
        self._again: list[int] = []
        if resume is not None:
            self._restore(resume)
        self._reported = self._trained // plan.minibatches_per_step
        self._is_training = self._is_ending = False
        self._rolling: set[asyncio.Task[None]] = set()
        self._scores = ScoreTasks(score, self._board, self._note_change)
        self._changed = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        self._clock: StepClock

    @property
    def version(self) -> int:
        """Of the policy: the mini-batches that were trained on."""
        return self._trained

    async def run(self) -> None:
        """Go through all steps.

        Raises:
            TimeoutError: A mini-batch was not complete within the deadline.
            Exception: The first that rollouts, score, learner or a callback raised; everything else was cancelled.
        """
        loop = asyncio.get_running_loop()
        self._clock = StepClock(loop.time)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for group in self._board.groups():
                    for member, rollout in group.unscored():
                        self._scores.start(self._tasks, group.task, member, rollout)
                if self._schedule.apart:
                    self._start_rolling(self._keep_rolling_out())
                await self._go_through_operations()
                self._scores.cancel()
                for rolling in self._rolling:
                    rolling.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    def end(self) -> None:
        """End the run before its next operation; rollouts and scores that are under way are given up.

        In `on_step` that is the end of the step. `state` tells what a resumed job has to do.
        """
        self._is_ending = True

    def state(self) -> PipelineState[R]:
        """Return what is outstanding; with the learner's weights of this moment that is a checkpoint.

        Raises:
            RuntimeError: The learner is in the middle of an update, so that there are no weights of this moment.
        """
        if self._is_training:
            raise RuntimeError("a mini-batch is being trained on; ask in on_update or on_step")
        running = [group.index for group in self._board.groups() if not group.is_rolled_out]
        return PipelineState(
            schedule=self._overlap.schedule,
            plan=self._plan,
            trained=self._trained,
            begun=self._begun,
            groups=[_state_of(group) for group in self._board.rolled_out()],
            again=sorted([*running, *self._again]),
        )

    def _restore(self, state: PipelineState[R]) -> None:
        state.check(self._overlap.schedule, self._plan)
        self._trained, self._begun, self._again = state.trained, state.begun, list(state.again)
        self._published = -1
        for saved in state.groups:
            self._board.begin(self._task(saved.index, version=saved.version))
            for member, rollout in enumerate(saved.rollouts):
                self._board.ended(saved.index, member, rollout)
            for member, score in saved.scores.items():
                self._board.scored(saved.index, member, score)

    # The learner's side: one operation after the other.

    async def _go_through_operations(self) -> None:
        while True:
            operation = self._next_operation()
            if not isinstance(operation, Publish):
                await self._report_step()
            if self._is_ending or isinstance(operation, Done):
                return
            await self._carry_out(operation)

    def _next_operation(self) -> Operation:
        missing = min(self._again, default=self._begun)
        progress = Progress(
            rolled_out=missing // self._plan.groups_per_step, trained=self._trained, published=self._published
        )
        return next_operation(self._schedule, self._plan, progress, publish_every=self._overlap.publish_every)

    async def _carry_out(self, operation: RollOut | Train | Publish) -> None:
        match operation:
            case RollOut(step):
                wanted = [index for index in self._plan.groups_of(step) if index not in self._board]
                await self._roll_out(self._begin(wanted))
            case Train(step, number):
                await self._train(step, number)
            case Publish(version):
                with self._clock.update.running():
                    await self._learner.publish(version)
                self._published = version
                self._note_change()

    async def _train(self, step: int, number: int) -> None:
        groups, waited_seconds = await self._complete_groups(step)
        if self._announcer is not None and not self._schedule.apart:
            self._announcer.update()
        minibatch = MiniBatch(
            step=step,
            number=number,
            version=self._trained,
            groups=[group.rated() for group in groups],
            rest=[group.rolled() for group in self._of_step(step)],
            waited_seconds=waited_seconds,
        )
        with self._clock.update.running():
            await self._learner.train(minibatch)
        self._trained += 1
        self._is_training = False
        self._note_change()
        if self._on_update is not None:
            await self._on_update(self._trained)

    async def _complete_groups(self, step: int) -> tuple[list[OpenGroup[P, R]], float]:
        """Wait for the groups of the next mini-batch and take them off the board; also returns the seconds it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            with self._clock.wait.running(), self._waiting():
                async with asyncio.timeout(self._deadline_seconds):
                    while (chosen := self._choose(step)) is None:
                        await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(
                f"{len(self._scores)} samples have no outcome after {self._deadline_seconds:g} s; "
                "raise step_deadline_seconds, or give the pool more replicas"
            ) from None
        self._is_training = True
        return self._board.take(chosen), loop.time() - began

    def _choose(self, step: int) -> list[int] | None:
        order = self._overlap.order
        if not self._schedule.apart:
            return choose_within_step(self._of_step(step), self._schedule, self._plan, order=order)
        bound = self._overlap.max_staleness
        return staleness.choose(
            self._board.groups(), self._plan, version=self._trained, max_staleness=bound, order=order
        )

    def _of_step(self, step: int) -> list[OpenGroup[P, R]]:
        return [] if self._schedule.apart else self._board.among(self._plan.groups_of(step))

    def _waiting(self) -> AbstractContextManager[None]:
        return nullcontext() if self._announcer is None else self._announcer.waiting()

    async def _report_step(self) -> None:
        if self._trained // self._plan.minibatches_per_step == self._reported:
            return
        times = self._clock.lap(self._reported)
        self._reported += 1
        if self._on_step is not None:
            await self._on_step(times)

    # The rollout side.

    async def _keep_rolling_out(self) -> None:
        """Begin groups as there is room for them, where rollouts have devices of their own."""
        at_once = asyncio.Semaphore(self._overlap.rollouts_at_once)

        async def roll_out(tasks: list[GroupTask[P]]) -> None:
            try:
                await self._roll_out(tasks)
            finally:
                at_once.release()

        while self._again or self._begun < self._plan.groups:
            await at_once.acquire()
            while not (wanted := self._admitted()):
                await self._changed.wait()  # for an update, whose wait for complete groups has the deadline
            self._start_rolling(roll_out(self._begin(wanted)))

    def _start_rolling(self, work: Coroutine[None, None, None]) -> None:
        rolling = self._tasks.create_task(work)
        self._rolling.add(rolling)
        rolling.add_done_callback(self._rolling.discard)

    def _admitted(self) -> list[int]:
        if self._published < 0:
            return []
        free = staleness.room(
            self._plan,
            # Those of the update that is going on are off the board, and not trained on yet.
            outstanding=self._begun - len(self._again) - self._trained * self._plan.groups_per_minibatch,
            version=self._trained,
            published=self._published,
            max_staleness=self._overlap.max_staleness,
        )
        left = [*self._again, *range(self._begun, self._plan.groups)]
        return left[: min(free, self._overlap.groups_per_rollout or self._plan.groups_per_step)]

    def _begin(self, indices: Sequence[int]) -> list[GroupTask[P]]:
        tasks = [self._task(index, version=self._published) for index in indices]
        for task in tasks:
            self._board.begin(task)
        self._begun = max(self._begun, *(index + 1 for index in indices))
        self._again = [index for index in self._again if index not in self._board]
        return tasks

    def _task(self, index: int, *, version: int) -> GroupTask[P]:
        return GroupTask(index=index, prompt=self._prompts(index), size=self._plan.group_size, version=version)

    async def _roll_out(self, tasks: list[GroupTask[P]]) -> None:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def on_end(task: GroupTask[P], member: int, rollout: R) -> None:
            if threading.get_ident() == thread:
                self._rollout_ended(task, member, rollout)
            else:  # in the order of the calls, and before the end of a `roll_out` whose work is done on that thread
                loop.call_soon_threadsafe(self._rollout_ended_elsewhere, task, member, rollout)

        if self._announcer is not None:
            self._announcer.rollout()
        with self._clock.rollout.running():
            await self._rollouts.roll_out(tasks, on_end)
        for group in self._board.among(task.index for task in tasks):
            if not group.is_rolled_out:
                ended = len(group.rollouts)
                raise RuntimeError(
                    f"roll_out returned with {ended} of {group.task.size} rollouts of group {group.index}"
                )

    def _rollout_ended(self, task: GroupTask[P], member: int, rollout: R) -> None:
        self._board.ended(task.index, member, rollout)
        self._scores.start(self._tasks, task, member, rollout)

    def _rollout_ended_elsewhere(self, task: GroupTask[P], member: int, rollout: R) -> None:
        try:
            self._rollout_ended(task, member, rollout)
        except ValueError as error:  # nobody called this who could catch it
            self._tasks.create_task(_fail(error))

    def _note_change(self) -> None:
        """Wake all who wait for something to be different."""
        self._changed.set()
        self._changed = asyncio.Event()


def _state_of(group: OpenGroup[P, R]) -> GroupState[R]:
    return GroupState(
        index=group.index, version=group.version, rollouts=group.rolled().rollouts, scores=dict(group.scores)
    )


async def _fail(error: Exception) -> NoReturn:
    raise error
