"""Owners of this machine's GPUs: a locked file for each GPU, in a folder that all pools of a user share.

A supervisor has the lock for as long as one of its replicas has the GPU, and the kernel drops it with the supervisor,
however that ends. Engines that sleep on the trainer's GPUs share a lock with others that do.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final

from rewardpool_api import RewardPoolSpec
from rewardpool_local.gpus import VISIBLE, Gpu, GpusUnreadableError, counted, variables, visible_to
from rewardpool_runtime.file_lock import try_lock
from rewardpool_runtime.state_files import state_dir

FOLDER: Final = ".gpus"  # in the folder of all pools; no namespace begins with a dot
ASK_AGAIN_SECONDS: Final = 30.0  # nvidia-smi may hang, and routers wait for the pass that asks it


@dataclass(frozen=True)
class _Share:
    gpu: Gpu
    lock: BinaryIO


class GpuShares:
    """The GPUs that one supervisor's replicas have."""

    def __init__(self, pool: str, environ: Mapping[str, str]) -> None:
        """Begin with none.

        Args:
            pool: `namespace/name`, which others see.
            environ: The supervisor's environment.
        """
        self._pool = pool
        self._environ = environ
        self._folder = state_dir(environ) / FOLDER
        self._shares: dict[str, list[_Share]] = {}
        self._visible: dict[str | None, tuple[Gpu, ...]] = {}
        self._ask_at = 0.0
        self._unreadable = ""

    async def acquire(self, replica: str, spec: RewardPoolSpec) -> str | None:
        """Acquire the GPUs for a replica, free ones first; returns why it cannot have them, or None."""
        needed = counted(spec)
        if needed == 0 or replica in self._shares:
            return None
        try:
            visible = await self._visible_to(spec)
            shares = self._lock(visible, needed, shared=spec.engine.sleep.enabled)
        except (GpusUnreadableError, OSError) as error:
            return f"the GPUs of this machine cannot be counted: {error}"
        if len(shares) < needed:
            _drop(shares)
            owners = owners_of(visible, self._environ, shared=spec.engine.sleep.enabled)
            have = "; ".join(f"GPU {gpu.name} is {owners[gpu.uuid]}'s" for gpu in visible if gpu.uuid in owners)
            # The words of a scheduler, by which a rollout knows that one replica has to leave before another can start.
            return f"Insufficient nvidia.com/gpu: {needed} needed, {len(shares)} of {len(visible)} free; {have}"
        self._shares[replica] = shares
        return None

    def variables(self, replica: str) -> dict[str, str]:
        return variables([share.gpu for share in self._shares.get(replica, ())])

    def release(self, replica: str) -> None:
        _drop(self._shares.pop(replica, ()))

    async def _visible_to(self, spec: RewardPoolSpec) -> tuple[Gpu, ...]:
        # Asked once: a replica that waits for a GPU looks again on every pass.
        key = spec.engine.variables.get(VISIBLE)
        if key not in self._visible:
            if monotonic() < self._ask_at:
                raise GpusUnreadableError(self._unreadable)
            try:
                self._visible[key] = await asyncio.to_thread(visible_to, spec, self._environ)
            except GpusUnreadableError as error:
                self._ask_at, self._unreadable = monotonic() + ASK_AGAIN_SECONDS, str(error)
                raise
        return self._visible[key]

    def _lock(self, visible: Sequence[Gpu], needed: int, *, shared: bool) -> list[_Share]:
        self._folder.mkdir(parents=True, exist_ok=True)
        mine = {share.gpu.uuid for shares in self._shares.values() for share in shares}
        left = [gpu for gpu in visible if gpu.uuid not in mine]
        shares: list[_Share] = []
        for alone in (True, False) if shared else (True,):
            for gpu in left:
                if len(shares) < needed and gpu not in [share.gpu for share in shares]:
                    shares += self._try(gpu, alone=alone, shared=shared)
        return sorted(shares, key=lambda share: visible.index(share.gpu))

    def _try(self, gpu: Gpu, *, alone: bool, shared: bool) -> list[_Share]:
        file = _file_of(self._folder, gpu).open("a+b")
        if not try_lock(file, shared=not alone):
            file.close()
            return []
        if shared and alone:
            try_lock(file, shared=True)
        file.truncate(0)
        file.write(self._pool.encode())
        file.flush()
        return [_Share(gpu, file)]


def owners_of(gpus: Sequence[Gpu], environ: Mapping[str, str], *, shared: bool) -> dict[str, str]:
    """The pools that have any of these GPUs now, by uuid.

    Args:
        environ: Says where pools keep their state.
        shared: Leave out those that would share theirs.
    """
    owners = {}
    for gpu in gpus:
        with suppress(FileNotFoundError), _file_of(state_dir(environ) / FOLDER, gpu).open("rb") as file:
            if not try_lock(file, shared=shared):
                owners[gpu.uuid] = file.read().decode(errors="replace") or "another pool"
    return owners


def _file_of(folder: Path, gpu: Gpu) -> Path:
    return folder / gpu.uuid.replace("/", "_")


def _drop(shares: Sequence[_Share]) -> None:
    for share in shares:
        share.lock.close()
