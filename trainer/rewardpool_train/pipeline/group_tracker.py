"""Counts of a run, without a clock or a task: which groups have begun, for which step, and their outcome.

Indices count up from 0 and are never reused. A step's groups begin together; a round of dynamic sampling drops some of
them and begins as many others; under `fully_async` groups begin when there is capacity. So each group that has begun is
in the buffer, to be rolled out again, dropped, or trained on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic

from rewardpool_train.pipeline.group_buffer import GroupBuffer, OpenGroup
from rewardpool_train.pipeline.parts import GroupTask, P, R
from rewardpool_train.pipeline.schedule import JobProgress, Plan, ScheduleName
from rewardpool_train.pipeline.state import GroupState, PipelineState


class GroupTracker(Generic[P, R]):
    """Progress of a run.

    Args:
        prompts: Called with a group's index, returns its prompt.
    """

    def __init__(
        self,
        plan: Plan,
        prompts: Callable[[int], P],
        *,
        is_informative: Callable[[Sequence[float | None]], bool] | None = None,
    ) -> None:
        self._plan = plan
        self._prompts = prompts
        self.buffer: GroupBuffer[P, R] = GroupBuffer(is_informative)
        self.begun = 0  # groups
        self.dropped = 0  # groups
        self.trained = 0  # mini-batches, which is the policy's version
        self.published = 0  # version of the rollout engine's weights; -1 if unknown, as after a resume
        self.rounds = 0  # of dynamic sampling, in the current step
        self.again: dict[int, int] = {}  # steps of the groups to roll out again, by index
        self._is_training = False

    def progress(self) -> JobProgress:
        """Return the job's progress, for schedules where rollout and training take turns."""
        steps_begun = (self.begun - self.dropped) // self._plan.groups_per_step
        return JobProgress(
            rolled_out=min(self.again.values(), default=steps_begun), trained=self.trained, published=self.published
        )

    def begin_step(self, step: int) -> list[GroupTask[P]]:
        """Begin the groups of the next step, or those of an earlier step that are to be rolled out again."""
        again = {index: of for index, of in self.again.items() if of == step}
        return self.begin(again or dict.fromkeys(range(self.begun, self.begun + self._plan.groups_per_step), step))

    def begin(self, groups: Mapping[int, int]) -> list[GroupTask[P]]:
        """Begin groups under the rollout engine's version; `groups` maps indices to steps."""
        tasks = [self._task(index, step, version=self.published) for index, step in groups.items()]
        for task in tasks:
            self.buffer.begin(task)
            self.begun = max(self.begun, task.index + 1)
            self.again.pop(task.index, None)
        return tasks

    def replace(self, indices: Sequence[int], step: int) -> tuple[list[OpenGroup[P, R]], list[GroupTask[P]]]:
        """Drop complete groups of the step and begin as many others; return both."""
        dropped = self.drop(indices)
        self.rounds += 1
        return dropped, self.begin(dict.fromkeys(range(self.begun, self.begun + len(dropped)), step))

    def drop(self, indices: Sequence[int]) -> list[OpenGroup[P, R]]:
        """Remove complete groups that are not trained on, and return them."""
        dropped = self.buffer.pop(indices)
        self.dropped += len(dropped)
        return dropped

    @property
    def outstanding(self) -> int:
        """Number of groups that have begun and are neither dropped nor trained on."""
        return self.begun - len(self.again) - self.dropped - self.trained * self._plan.groups_per_minibatch

    def unbegun(self) -> list[int]:
        """Return the indices of the groups that the job still has to begin."""
        return [*self.again, *range(self.begun, self._plan.groups + self.dropped)]

    def start_training(self, indices: Sequence[int]) -> list[OpenGroup[P, R]]:
        """Remove groups from the buffer and return them; call `finish_training` after their update."""
        self._is_training = True
        return self.buffer.pop(indices)

    def finish_training(self) -> None:
        self.trained += 1
        self._is_training = False
        if self.trained % self._plan.minibatches_per_step == 0:
            self.rounds = 0

    def state(self, schedule: ScheduleName) -> PipelineState[R]:
        """Return the outstanding groups.

        Raises:
            RuntimeError: An update is in progress.
        """
        if self._is_training:
            raise RuntimeError("an update is in progress; call state() in on_update or on_step")
        running = {group.index: group.task.step for group in self.buffer.groups() if not group.is_rolled_out}
        return PipelineState(
            schedule=schedule,
            plan=self._plan,
            trained=self.trained,
            begun=self.begun,
            dropped=self.dropped,
            rounds=self.rounds,
            groups=[_state_of(group) for group in self.buffer.rolled_out()],
            again=dict(sorted((running | self.again).items())),
        )

    def restore(self, state: PipelineState[R]) -> None:
        """Restore the state of an earlier run; `PipelineState.check` says whether it is of this job."""
        self.begun, self.dropped, self.rounds = state.begun, state.dropped, state.rounds
        self.trained, self.published = state.trained, -1
        self.again = dict(state.again)
        for saved in state.groups:
            self.buffer.begin(self._task(saved.index, saved.step, version=saved.version))
            for member, rollout in enumerate(saved.rollouts):
                self.buffer.add_rollout(saved.index, member, rollout)
            for member, score in saved.scores.items():
                self.buffer.add_score(saved.index, member, score)

    def _task(self, index: int, step: int, *, version: int) -> GroupTask[P]:
        size = self._plan.group_size
        return GroupTask(index=index, prompt=self._prompts(index), size=size, version=version, step=step)


def _state_of(group: OpenGroup[P, R]) -> GroupState[R]:
    return GroupState(
        index=group.index,
        step=group.task.step,
        version=group.version,
        rollouts=group.rolled().rollouts,
        scores=dict(group.scores),
    )
