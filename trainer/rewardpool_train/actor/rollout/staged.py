"""New weights for an engine that is in the middle of a batch: they are kept ready, and taken when the batch has ended.

So training goes on meanwhile. It costs a third copy of the policy, and is for `generate` of transformers; vLLM takes
weights at any time.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from rewardpool_train.actor.data import Prompt, Rollout
from rewardpool_train.actor.rollout.engine import RolloutEngine, WeightSource
from rewardpool_train.pipeline.parts import GroupTask, OnEnd


class StagedEngine:
    """An engine that samples on a thread of its own, while another thread trains and gives it weights.

    Args:
        engine: That samples.
        staging: An unsharded copy of the policy, to hold weights that wait.
        thread: Of the engine; it does one thing at a time, in the order in which it is asked.
    """

    def __init__(self, engine: RolloutEngine, *, staging: Any, thread: Executor) -> None:
        self._engine = engine
        self._staging = staging
        self._thread = thread
        self._taken: Future[None] | None = None

    @property
    def version(self) -> int:
        """Of the weights that it samples with."""
        return self._engine.version

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Rollout]) -> None:
        """Sample every member of every task, after the weights that wait are taken."""
        await self._engine.roll_out(tasks, on_end)

    def load(self, source: WeightSource, version: int) -> None:
        """Keep the source's weights of now ready; blocks while others are still waiting to be taken."""
        if self._taken is not None:
            self._taken.result()
        source.copy_weights_to(self._staging)
        self._taken = self._thread.submit(self._engine.load, _Staged(self._staging), version)


class _Staged:
    """The weights that wait, as a source."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def copy_weights_to(self, model: Any) -> None:
        """Give a copy of the policy these weights."""
        model.load_state_dict(self._model.state_dict())

    def save_pretrained(self, folder: Path) -> None:
        """Write them in Hugging Face's format."""
        self._model.save_pretrained(folder)
