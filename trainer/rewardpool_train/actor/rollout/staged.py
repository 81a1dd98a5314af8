"""Keep new weights ready for an engine that is in the middle of a batch, until the batch has ended.

So training continues meanwhile. It costs a third copy of the policy, and is only for `generate` of transformers; vLLM
loads weights at any time.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.rollout.engine import RolloutEngine, WeightSource
from rewardpool_train.pipeline.parts import GroupTask, OnEnd


class StagedEngine:
    """An engine that samples on its own thread, while another thread trains and loads weights.

    Args:
        staging: An unsharded copy of the policy, which holds the waiting weights.
        thread: Thread of the engine; it runs one call at a time, in order.
    """

    def __init__(self, engine: RolloutEngine, *, staging: Any, thread: Executor) -> None:
        self._engine = engine
        self._staging = staging
        self._thread = thread
        self._taken: Future[None] | None = None

    @property
    def version(self) -> int:
        return self._engine.version

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Trajectory]) -> None:
        """Sample every member of every task, after waiting weights are loaded."""
        await self._engine.roll_out(tasks, on_end)

    def load(self, source: WeightSource, version: int) -> None:
        """Keep the source's current weights ready; blocks while earlier ones still wait."""
        if self._taken is not None:
            self._taken.result()
        source.copy_weights_to(self._staging)
        self._taken = self._thread.submit(self._engine.load, _Staged(self._staging), version)


class _Staged:
    def __init__(self, model: Any) -> None:
        self._model = model

    def copy_weights_to(self, model: Any) -> None:
        model.load_state_dict(self._model.state_dict())

    def save_pretrained(self, folder: Path) -> None:
        self._model.save_pretrained(folder)
