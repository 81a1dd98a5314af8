"""Several simulated jobs as the ranks of one: they meet where collectives are, and must come in the same order."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from support.simulated_job import Batch, SimulatedJob

from rewardpool_train.pipeline.parts import GroupTask, OnEnd


class SimulatedCollectives:
    """What a process group does: the n-th call of every rank belongs together.

    Args:
        size: Number of ranks.
    """

    def __init__(self, size: int) -> None:
        self.calls: list[list[str]] = [[] for _ in range(size)]
        self._given: list[list[int]] = []
        self._met: list[asyncio.Event] = []

    async def max(self, rank: int, what: str, value: int = 0) -> int:
        """Return the maximum over the ranks, when all have called."""
        number = len(self.calls[rank])
        self.calls[rank].append(what)
        if number == len(self._met):
            self._given.append([])
            self._met.append(asyncio.Event())
        self._given[number].append(value)
        if len(self._given[number]) == len(self.calls):
            self._met[number].set()
        await self._met[number].wait()
        return max(self._given[number])


@dataclass
class SimulatedRank(SimulatedJob):
    """One rank; rollouts, updates and publishing meet the others, as those of the actor do.

    Attributes:
        rank: Its number.
        collectives: Of the job.
    """

    rank: int = 0
    collectives: SimulatedCollectives = field(default_factory=lambda: SimulatedCollectives(1))

    async def most(self, missing: int) -> int:
        return await self.collectives.max(self.rank, "missing", missing)

    async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, str]) -> None:
        await super().roll_out(tasks, on_end)
        await self.collectives.max(self.rank, "rollout")

    async def train(self, minibatch: Batch) -> None:
        await self.collectives.max(self.rank, f"train {minibatch.step}.{minibatch.number}")
        await super().train(minibatch)

    async def publish(self, version: int) -> None:
        await self.collectives.max(self.rank, f"publish {version}")
        await super().publish(version)

    async def on_step(self, times: Any) -> None:
        await self.collectives.max(self.rank, "step")
        await super().on_step(times)
