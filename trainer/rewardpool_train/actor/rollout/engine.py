"""What a rollout engine can do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rewardpool_train.actor.data import Prompt, Rollout
from rewardpool_train.pipeline.parts import GroupTask, OnEnd


class WeightSource(Protocol):
    """Where weights are taken from; an `FsdpActor` is one. All ranks call these together."""

    def copy_weights_to(self, model: Any) -> None:
        """Give an unsharded copy of the policy the weights of now."""
        ...

    def save_pretrained(self, folder: Path) -> None:
        """Write the weights of now in Hugging Face's format, on rank 0."""
        ...


class RolloutEngine(Protocol):
    """Samples responses; one per rank, all of the same kind."""

    @property
    def version(self) -> int:
        """Of the weights that it samples with."""
        ...

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Rollout]) -> None:
        """Sample every member of every task, and hand over each response the moment it ends, from whatever thread.

        Raises:
            RolloutError: The engine cannot.
        """
        ...

    def load(self, source: WeightSource, version: int) -> None:
        """Sample with the source's weights of now from here on. Blocks; all ranks call this together.

        Raises:
            RolloutError: The engine did not take them.
            OtherRankError: That is so on another rank.
        """
        ...
