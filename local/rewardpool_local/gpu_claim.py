"""The engines' claim on GPUs that trainers share: a lock that the supervisor has while an engine may have a GPU.

A rank that computes has the same lock shared with its peers, so either some ranks have the GPUs or the engines do. Both
sides try and never wait inside the kernel. It drops what a killed process had.
"""

from pathlib import Path
from typing import BinaryIO

from rewardpool_runtime.file_lock import try_lock


class GpuClaim:
    """One pool's claim; not taken at first."""

    def __init__(self, path: Path) -> None:
        """Prepare; `path` is the lock's file, made when it is first needed."""
        self._path = path
        self._file: BinaryIO | None = None

    def renew(self, *, needed: bool) -> bool:
        """Take the claim if it is needed, else let it go; returns whether engines may have the GPUs.

        Raises:
            OSError: the file cannot be made.
        """
        if not needed:
            self._release()
            return True
        if self._file is None:
            file = self._path.open("ab")
            if not try_lock(file):
                file.close()
                return False
            self._file = file
        return True

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
