"""Protocol of a rollout engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.pipeline.parts import GroupTask, OnEnd


class WeightSource(Protocol):
    """Source of weights; an `FsdpActor` is one. All ranks call these together."""

    def copy_weights_to(self, model: Any) -> None:
        """Copy the current weights to an unsharded copy of the policy."""
        ...

    def save_pretrained(self, folder: Path) -> None:
        """Write the current weights in Hugging Face's format, on rank 0."""
        ...


class RolloutEngine(Protocol):
    """Samples responses; one per rank, all of the same kind."""

    @property
    def version(self) -> int: ...

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Trajectory]) -> None:
        """Sample every member of every task, and call `on_end` for each response as soon as it ends, from any thread.

        Raises:
            RolloutError: The engine cannot sample.
        """
        ...

    def load(self, source: WeightSource, version: int) -> None:
        """Sample with the source's current weights from now on. Blocks; all ranks call this together.

        Raises:
            RolloutError: The engine did not load them.
            OtherRankError: The engine of another rank did not.
        """
        ...
