"""The workers of a pool on one machine: a process each, marked, started, drained and stopped as the plan says."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import aiohttp

from rewardpool_api import RewardPool, names
from rewardpool_api.status import WorkerProcess
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import Worker, WorkerSet
from rewardpool_local.folder import PoolFolder
from rewardpool_local.gpu_shares import GpuShares
from rewardpool_local.launching import Launcher, revision_of
from rewardpool_local.replica import Replica
from rewardpool_local.supervised_process import Run

log = logging.getLogger(__name__)


class Fleet:
    """All workers, by revision."""

    def __init__(
        self,
        *,
        run: Run,
        folder: PoolFolder,
        session: aiohttp.ClientSession,
        python: str,
        key: str | None,
        environ: Mapping[str, str],
    ) -> None:
        """Start empty.

        Args:
            run: what the processes of the supervisor share.
            folder: has the mounted files and the key.
            key: the pool's key; None when it needs none.
            environ: this process's environment.
        """
        self._run = run
        self._session = session
        self._key = key
        self._launcher = Launcher(python=python, folder=folder)
        self._gpus = GpuShares(run.pool, environ)
        self._replicas: dict[str, Replica] = {}
        self._sets: dict[str, WorkerSet] = {}
        self._pools: dict[str, RewardPool] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def observe(self) -> tuple[tuple[WorkerSet, ...], tuple[Worker, ...]]:
        return tuple(self._sets.values()), tuple(replica.observe() for replica in self._replicas.values())

    def describe(self) -> list[WorkerProcess]:
        """Return the workers for the status, in the order of their numbers."""
        return [replica.describe() for replica in sorted(self._replicas.values(), key=lambda replica: replica.name)]

    @property
    def has_gpu(self) -> bool:
        """True if some engine has a GPU, which those that sleep do not."""
        return any(replica.has_gpu for replica in self._replicas.values())

    @property
    def revisions(self) -> Mapping[str, RewardPool]:
        return {revision: self._pools[revision] for revision in self._sets}

    @property
    def codes(self) -> frozenset[str]:
        """Digests of the code that its workers run, or would run if one started again."""
        revisions = {*self._sets, *(replica.revision for replica in self._replicas.values())}
        annotations = (self._pools[revision].metadata.annotations for revision in revisions)
        return frozenset(found[names.ANNOTATION_CODE] for found in annotations if names.ANNOTATION_CODE in found)

    async def carry_out(self, plan: Plan, pool: RewardPool, now: datetime) -> None:
        """Mark, stop and start workers as planned. `pool` is what the plan's newest revision was rendered from."""
        self._pools[revision_of(pool)] = pool
        for name in plan.drain:
            self._replicas[name].draining_since = now
        for name in plan.undrain:
            self._replicas[name].draining_since = None
        for name in plan.stop:
            self._stop(self._replicas[name])
        self._sets = {
            wanted.revision: replace(wanted, created=self._sets.get(wanted.revision, wanted).created or now)
            for wanted in plan.worker_sets
        }
        for wanted in self._sets.values():
            self._grow(wanted, now)
        for replica in self._replicas.values():
            await replica.start_if_due(may_start=not plan.hold_starts)
        for name, replica in self._replicas.items():
            replica.parked = name in plan.parked
        for name in (*plan.sleep, *plan.wake):
            self._replicas[name].turn(awake=name in plan.wake)

    async def stop(self) -> None:
        await asyncio.gather(*(replica.stop() for replica in self._replicas.values()), *self._stopping)

    async def kill(self) -> None:
        await asyncio.gather(*(replica.kill() for replica in self._replicas.values()), *self._stopping)

    def _grow(self, wanted: WorkerSet, now: datetime) -> None:
        present = [
            replica
            for replica in self._replicas.values()
            if replica.revision == wanted.revision and not replica.process.stopping
        ]
        for _ in range(wanted.replicas - len(present)):
            name = self._free_name()
            self._replicas[name] = self._replica(name, self._pools[wanted.revision], created=now)

    def _replica(self, name: str, pool: RewardPool, *, created: datetime) -> Replica:
        return Replica(
            name,
            pool,
            created=created,
            run=self._run,
            command=lambda: self._launcher.command(pool, name=name, gpus=self._gpus.variables(name)),
            acquire_gpus=lambda: self._gpus.acquire(name, pool.spec),
            session=self._session,
            key=self._key,
        )

    def _free_name(self) -> str:
        # The smallest number, so that a pool that grows and shrinks for weeks does not leave a log for every start.
        number = 1
        while f"worker-{number}" in self._replicas:
            number += 1
        return f"worker-{number}"

    def _stop(self, replica: Replica) -> None:
        replica.process.stopping = True
        task = asyncio.create_task(self._stop_and_forget(replica))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop_and_forget(self, replica: Replica) -> None:
        await replica.stop()
        self._gpus.release(replica.name)
        del self._replicas[replica.name]
        log.info("%s: stopped", replica.name)
        self._run.changed()
