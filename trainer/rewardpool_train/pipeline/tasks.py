"""The scores of a run that are under way: one task a rollout, or a group, from its end to its place in the buffer.

Thousands of rollouts may end at one moment, as those of a step do whose engine gives them out together. Their tasks
begin some at a time, after whoever gave them out has gone on: the devices get their next operation first, and whatever
else happens on the event loop meanwhile waits for some of them and not for all.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Generic, TypeVar

from rewardpool_train.pipeline.group_buffer import GroupBuffer, OpenGroup
from rewardpool_train.pipeline.parts import GroupScore, GroupTask, P, R, RolledGroup, Score, Scoring, SettledScore

T = TypeVar("T")

AT_ONCE: Final = 64
"""Tasks that begin in one go of the event loop."""


class ScoreTasks(Generic[P, R]):
    """Asks for scores and enters them in a buffer.

    Args:
        score: Judges a rollout, or a whole group, or the one and then the other.
        buffer: Of the run.
        on_complete: Called when a group has its last score.
        tasks: Of the run; what goes wrong with a score goes wrong with them.
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
        self._waiting: deque[tuple[OpenGroup[P, R], int]] = deque()
        """Groups, each with the member whose rollout ended; their tasks are still to begin."""

    def __len__(self) -> int:
        """Return the number of samples whose scores are under way."""
        waiting = sum(self._samples_of(group) for group, _ in self._waiting)
        return sum(self._running.values()) + waiting

    def submit(self, group: OpenGroup[P, R], member: int) -> None:
        """Begin to ask for the score of a rollout that has ended; where groups are judged as a whole, with the last."""
        if isinstance(self._score, GroupScore) and not group.is_rolled_out:
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)
        self._waiting.append((group, member))

    def resume(self) -> None:
        """Begin to ask for whatever scores a checkpoint lacks."""
        for group in self._buffer.groups():
            unscored = [member for member, _ in group.unscored()]
            # For a group that is judged as a whole, one of its members stands for all.
            for member in unscored[:1] if isinstance(self._score, GroupScore) else unscored:
                self.submit(group, member)

    def cancel(self) -> None:
        """Give up all that are under way."""
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
        except RuntimeError:  # the run is ending with an error, and this rollout ended before it heard of that
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
                # A checkpoint that is made meanwhile lacks the last score, so that the group is looked at again.
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
    """Await it. Raises RuntimeError where somebody else than the run cancels that."""
    try:
        return await work
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise  # by the run, because it ends
        raise RuntimeError(f"somebody cancelled {what % numbers}") from None


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, with a word on how many others there were."""
    first, *others = errors.exceptions
    if isinstance(first, BaseExceptionGroup):
        first = first_error(first)
    if others:
        first.add_note(f"and {len(others)} more, of which the next is: {others[0]!r}")
    return first
