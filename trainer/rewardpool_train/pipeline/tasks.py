"""Scores in progress: one task per rollout, or per group, from its end until its score is in the buffer.

Thousands of rollouts may end at the same moment, if the engine returns all rollouts of a step together. Their tasks
start in batches, after the engine has returned: so the devices get their next operation first, and other work on the
event loop waits for a batch and not for all of them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Generic, TypeVar

from rewardpool_train.pipeline.group_buffer import GroupBuffer, OpenGroup
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, P, R, RolledGroup, Score, Scoring, SettledScore

T = TypeVar("T")

AT_ONCE: Final = 64  # tasks that start in one iteration of the event loop


class ScoreTasks(Generic[P, R]):
    """Requests scores and adds them to a buffer.

    Args:
        score: Scores a rollout, a whole group, or first the one and then the other.
        on_complete: Called when a group has its last score.
        tasks: Task group of the run, which an error of a score ends.
    """

    def __init__(
        self,
        score: Scoring[P, R],
        buffer: GroupBuffer[P, R],
        on_complete: Callable[[], None],
        *,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._score = score
        self._buffer = buffer
        self._on_complete = on_complete
        self._tasks = tasks
        self._running: dict[asyncio.Task[None], int] = {}
        # Groups whose tasks are still to start, each with the member whose rollout ended.
        self._waiting: deque[tuple[OpenGroup[P, R], int]] = deque()

    def __len__(self) -> int:
        """Return the number of samples whose scores are in progress."""
        waiting = sum(self._samples_of(group) for group, _ in self._waiting)
        return sum(self._running.values()) + waiting

    def submit(self, group: OpenGroup[P, R], member: int) -> None:
        """Request the score of a rollout that has ended; with `GroupScore`, that of its group when it is the last."""
        if isinstance(self._score, GroupScore) and not group.is_rolled_out:
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)
        self._waiting.append((group, member))

    def resume(self) -> None:
        """Request the scores that a checkpoint lacks."""
        for group in self._buffer.groups():
            unscored = [member for member, _ in group.unscored()]
            # One member stands for a group that is judged as a whole.
            for member in unscored[:1] if isinstance(self._score, GroupScore) else unscored:
                self.submit(group, member)

    def cancel(self) -> None:
        self._waiting.clear()
        for running in self._running:
            running.cancel()

    def _samples_of(self, group: OpenGroup[P, R]) -> int:
        return group.task.size if isinstance(self._score, GroupScore) else 1

    def _begin(self) -> None:
        for _ in range(min(AT_ONCE, len(self._waiting))):
            group, member = self._waiting.popleft()
            if isinstance(self._score, GroupScore):
                work = self._score_group(self._score, group.rolled())
            else:
                score = self._score.score if isinstance(self._score, SettledScore) else self._score
                work = self._score_rollout(score, group.task, member, group.rollouts[member])
            self._start(work, samples=self._samples_of(group))
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)

    def _start(self, work: Coroutine[None, None, None], *, samples: int) -> None:
        try:
            running = self._tasks.create_task(work)
        except RuntimeError:  # the run is ending with an error, and this rollout ended before its engine was cancelled
            work.close()
            return
        self._running[running] = samples
        running.add_done_callback(self._running.pop)

    async def _score_rollout(self, score: Score[P, R], task: GroupTask[P], member: int, rollout: R) -> None:
        value = await _await_result(
            score(task, member, rollout), "the score of member %d of group %d", member, task.index
        )
        if isinstance(self._score, SettledScore):
            group = self._buffer.completed_by(task.index, member, value)
            if group is not None and not self._score.is_settled(group):
                # A checkpoint that is written meanwhile lacks the last score, so the group is checked again.
                values = await _await_result(self._score.settle(group), "the scores of group %d", task.index)
                self._buffer.add_scores(task.index, values)
                self._on_complete()
                return
        if self._buffer.add_score(task.index, member, value):
            self._on_complete()

    async def _score_group(self, score: GroupScore[P, R], group: RolledGroup[P, R]) -> None:
        values = await _await_result(score.judge(group), "the scores of group %d", group.task.index)
        self._buffer.add_scores(group.task.index, values)
        self._on_complete()


async def _await_result(work: Awaitable[T], what: str, *numbers: int) -> T:
    """Await it, and raise RuntimeError if anything but the run cancels it."""
    try:
        return await work
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise  # by the run, because it ends
        raise RuntimeError(f"cancelled from outside the run: {what % numbers}") from None


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, with a note that counts the others."""
    first, *others = errors.exceptions
    if isinstance(first, BaseExceptionGroup):
        first = first_error(first)
    if others:
        first.add_note(f"and {len(others)} more, of which the next is: {others[0]!r}")
    return first
