"""The scores of a run that are under way: one task each, from the end of its rollout to its place in the buffer."""

import asyncio
from collections.abc import Callable
from typing import Generic

from rewardpool_train.pipeline.group_buffer import GroupBuffer
from rewardpool_train.pipeline.parts import GroupTask, P, R, Score


class ScoreTasks(Generic[P, R]):
    """Asks for scores and enters them in a buffer.

    Args:
        score: Judges a rollout.
        buffer: Of the run.
        on_complete: Called when a group has its last score.
        tasks: Of the run; what goes wrong with a score goes wrong with them.
    """

    def __init__(
        self,
        score: Score[P, R],
        buffer: GroupBuffer[P, R],
        on_complete: Callable[[], None],
        *,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._score = score
        self._buffer = buffer
        self._on_complete = on_complete
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, task: GroupTask[P], member: int, rollout: R) -> None:
        """Begin to ask for a score."""
        asking = self._ask(task, member, rollout)
        try:
            running = self._tasks.create_task(asking)
        except RuntimeError:  # the run is ending with an error, and this rollout ended before it heard of that
            asking.close()
            return
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """Give up all that are under way."""
        for running in self._running:
            running.cancel()

    async def _ask(self, task: GroupTask[P], member: int, rollout: R) -> None:
        try:
            score = await self._score(task, member, rollout)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise  # by the run, because it ends
            raise RuntimeError(f"somebody cancelled the score of member {member} of group {task.index}") from None
        if self._buffer.scored(task.index, member, score):
            self._on_complete()


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, with a word on how many others there were."""
    first, *others = errors.exceptions
    if isinstance(first, BaseExceptionGroup):
        first = first_error(first)
    if others:
        first.add_note(f"and {len(others)} more, of which the next is: {others[0]!r}")
    return first
