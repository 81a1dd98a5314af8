"""Share the job's GPUs with its pools, if these run on them: the turns of one rank.

If a pool of the reward, or a teacher, sleeps on this machine, each rank gets a `SharedGpu`: rollouts, updates and
checkpoints are the trainer's turns, scores the pools'. After each of its turns a rank frees torch's cache, because any
other rank may wake the pools. docs/colocated.md explains all of it.
"""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from rewardpool._client.pool import Pool
from rewardpool._client.wake_lock import WITHIN_SECONDS
from rewardpool.errors import ConfigError
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.colocated import Costs, GpuLock, SharedGpu, TurnReport
from rewardpool_train.config import TrainConfig
from rewardpool_train.pipeline.on_thread import on_thread


class Sleeps(Protocol):
    """Owner of pools: the reward, or the teachers."""

    @property
    def pools(self) -> Mapping[str, Pool]: ...

    def sleeping(self) -> dict[str, Path]:
        """Return the folders of those of its pools that sleep on this machine, by name."""
        ...

    def awake(self, *, within_seconds: float) -> AbstractAsyncContextManager[None]:
        """Within this context all pools of `sleeping` are awake."""
        ...


class Sharing:
    """Sharing of the GPUs by one rank."""

    def __init__(self, asked: Sequence[Sleeps], folders: Mapping[str, Path], config: TrainConfig) -> None:
        """Create it; all ranks do this together.

        Args:
            asked: Their pools wake and sleep.
            folders: Folders of the pools that sleep, by name.
        """
        self._asked = asked
        self._folders = folders
        self._config = config
        # On the CPU, so that a rank that waits for the others uses no GPU memory.
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=config.step_deadline_seconds))
        self._gpu: SharedGpu | None = None

    def report(self) -> TurnReport:
        """Return the cost of the last run's turns on this rank."""
        return TurnReport() if self._gpu is None else self._gpu.report()

    def gpu(self, thread: Executor) -> SharedGpu:
        """Return this rank's `SharedGpu` for a run, not entered yet; `thread` runs all collectives."""
        given = self._config.colocated
        # A rank that releases a pool waits for the others that hold it, as long as a step's scores may take.
        patient_seconds = max(WITHIN_SECONDS, self._config.step_deadline_seconds)
        self._gpu = SharedGpu(
            lambda: self._awake(within_seconds=patient_seconds),
            Costs(patience_seconds=given.patience_seconds, longest_wait_seconds=given.longest_wait_seconds),
            peers=_Peers(self._folders, group=self._group, thread=thread),
            free_memory=torch.cuda.empty_cache,  # does nothing where there is no CUDA, or nothing is on it
            deadline_seconds=patient_seconds,
        )
        return self._gpu

    @asynccontextmanager
    async def _awake(self, *, within_seconds: float) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            for one in self._asked:
                await stack.enter_async_context(one.awake(within_seconds=within_seconds))
            yield


class _Peers(GpuLock):
    """The job's ranks, as `SharedGpu` uses them."""

    def __init__(self, folders: Mapping[str, Path], *, group: Any, thread: Executor) -> None:
        super().__init__(folders.values())
        self._group = group
        self._thread = thread

    async def any_overdue(self, overdue: bool) -> bool:
        return await on_thread(self._thread, self._any, overdue)

    def _any(self, flag: bool) -> bool:
        flags = torch.tensor([flag], dtype=torch.uint8)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._group)
        return bool(flags.item())


def open_sharing(config: TrainConfig, asked: Sequence[Sleeps], *, ranks: Ranks) -> Sharing | None:
    """Return the sharing of the GPUs with pools of these; None if they are not shared. All ranks call this together.

    Raises:
        ConfigError: The config requires sharing, which is impossible here.
        PoolError: A pool cannot be read.
    """
    if config.colocated.enabled is False:
        return None
    folders = ranks.broadcast({name: folder for one in asked for name, folder in one.sleeping().items()})
    if not folders:
        if config.colocated.enabled:
            pools = [name for one in asked for name in one.pools]
            without = f"none of {', '.join(pools)} sleeps" if pools else "the reward has no pool that could sleep"
            raise ConfigError("colocated.enabled", f"{without} on this machine; {_REMEDY}")
        return None
    config.check_shares_gpu()
    if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) < ranks.size:
        raise ConfigError(
            "colocated.enabled", f"all {ranks.size} ranks must be on the machine of {', '.join(folders)}, which sleeps"
        )
    return Sharing(asked, folders, config)


_REMEDY = "set spec.engine.sleep.enabled of one and start it here with `rewardpool up`, or leave this out"
