"""The ranks of a job that share the GPUs of one machine with reward pools, as one of them sees the others.

    every rank asks -> together     an operation of the trainer needs all of them, so it begins when all have asked
    take / release   -> GpuLock      a file in each pool's folder: ranks that compute lock it together, engines alone

Were the GPU taken before all ranks have asked, one would sit in a collective and hold it, and another one would wait
for scores that need it. The kernel drops the lock of a rank that was killed.
"""

import fcntl
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from rewardpool.errors import PoolAccessError
from rewardpool_runtime.file_lock import try_lock
from rewardpool_runtime.state_files import GPU_FILE


class Peers(Protocol):
    """What `SharedGpu` needs of the job's ranks. Alone, a rank asks itself."""

    async def any_overdue(self, overdue: bool) -> bool:
        """Return whether any rank said `overdue`, once all ranks have called this as often."""
        ...

    def try_acquire(self) -> bool:
        """Try to have the GPU with the other ranks; False while an engine may have it."""
        ...

    def release(self) -> None:
        """Have it no more."""
        ...

    def others_compute(self) -> bool:
        """Whether another rank has it; asked by one that has not."""
        ...


class NoPeers:
    """A process that nobody shares the trainer's turns with, as far as it knows."""

    async def any_overdue(self, overdue: bool) -> bool:
        """Nobody else is asked, and `turns.choose` knows what is overdue here."""
        return False

    def try_acquire(self) -> bool:
        """Nobody else has it."""
        return True

    def release(self) -> None:
        """Nobody else is notified."""

    def others_compute(self) -> bool:
        """Nobody else does."""
        return False


class GpuLock:
    """The GPUs that some pools of this machine share with trainers; `Peers` but for `together`.

    Args:
        folders: Of the pools.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._paths = [folder / GPU_FILE for folder in sorted(folders)]
        self._taken: list[BinaryIO] = []

    def try_acquire(self) -> bool:
        """As `Peers.try_acquire`: all pools' GPUs, or none of them.

        Raises:
            PoolAccessError: A pool's folder cannot be written.
        """
        for path in self._paths:
            file = _opened(path)
            self._taken.append(file)
            if not try_lock(file, shared=True):
                self.release()
                return False
        return True

    def release(self) -> None:
        """As `Peers.release`."""
        while self._taken:
            file = self._taken.pop()
            # A child of this process may have inherited the file, so closing it here would not be enough.
            fcntl.flock(file, fcntl.LOCK_UN)
            file.close()

    def others_compute(self) -> bool:
        """As `Peers.others_compute`. Two ranks that look at once may each take the other for one that computes.

        Raises:
            PoolAccessError: A pool's folder cannot be written.
        """
        return any(_is_shared(path) for path in self._paths)


def _is_shared(path: Path) -> bool:
    with _opened(path) as file:
        # Where it cannot even be shared an engine has it.
        return try_lock(file, shared=True) and not try_lock(file)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("ab")
    except OSError as error:
        raise PoolAccessError(f"the GPUs of a pool cannot be locked: {error}") from error
