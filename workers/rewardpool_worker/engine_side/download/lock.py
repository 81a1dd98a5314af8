"""One holder at a time, on a disk that several machines may share; a lock that dies with its holder.

Two means, because neither is enough. `flock` ends with its process, at once, where the file system has it: local disks,
NFS, CephFS. Some shared file systems grant it to everybody, or refuse it; therefore the holder also writes a heartbeat,
a file with a number that grows, and who finds the heart of another machine beating keeps off. The clocks of the
machines are never compared: a heart is dead when *this* process has seen no beat for `DEAD_SECONDS`.
"""

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rewardpool_worker.engine_side.download.plain_file import open_to_append, read_text

BEAT_SECONDS = 5.0
DEAD_SECONDS = 30.0
# Where there is no flock, two may write a heartbeat at the same moment; the one whose is there after this has it.
SETTLE_SECONDS = 2.0
MOST_NAME = 253  # characters
_NO_FLOCK = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)


class LostLockError(RuntimeError):
    """Another one took over: this process was stopped for so long that it looked dead."""


class CacheLock:
    """A lock of one model's folder."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str,
        process: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        flock: Callable[[int, int], object] = fcntl.flock,
    ) -> None:
        """Hold nothing yet.

        Args:
            folder: where the lock's two files are; made if it is missing.
            host: name of this machine or pod.
            process: tells this process from others of the same host.
            clock: monotonic seconds.
            sleep: waits so many seconds.
            flock: the system's call.
        """
        self._folder = folder
        self._host = host
        self._process = process
        self._clock = clock
        self._sleep = sleep
        self._flock = flock
        self._file: IO[bytes] | None = None
        self._beats = 0
        self._seen: tuple[object, float] | None = None
        # The heart beats in a thread of its own; a signal may release the lock in the middle of anything.
        self._guard = threading.RLock()

    def try_acquire(self) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = open_to_append(self._folder / "lock")
        try:
            locking = self._try_flock(file)
            if locking is False or self._is_held_elsewhere(has_flock=locking is True):
                file.close()
                return False
            self._write_beat({})
            if locking is None:
                self._sleep(SETTLE_SECONDS)
                if not self._is_mine():
                    file.close()
                    return False
            self._file = file
        except BaseException:
            file.close()
            raise
        return True

    def heartbeat(self, report: dict[str, Any]) -> None:
        """Show that the holder lives, and how far it is.

        Raises:
            LostLockError: another one has the lock.
        """
        with self._guard:
            if self._file is None:
                return
            if not self._is_mine():
                raise LostLockError
            self._write_beat(report)

    def report(self) -> dict[str, Any]:
        """Return the last note of the holder; empty where there is none."""
        report: dict[str, Any] = self._read_beat().get("report", {})
        return report

    def holder(self) -> str:
        """Name of the machine or pod that holds the lock, as far as it says."""
        host: str = self._read_beat().get("host", "")
        return host[:MOST_NAME] if host and host.isprintable() else "another process"

    def release(self) -> None:
        with self._guard:
            if self._file is None:
                return
            if self._is_mine():
                self._heart.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    @property
    def _heart(self) -> Path:
        return self._folder / "holder.json"

    def _try_flock(self, file: IO[bytes]) -> bool | None:
        """Return whether the system gave the lock; None where it cannot."""
        try:
            self._flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _NO_FLOCK:
                return None
            raise
        return True

    def _is_held_elsewhere(self, *, has_flock: bool) -> bool:
        beat = self._read_beat()
        if not beat or self._is_mine() or (has_flock and beat["host"] == self._host):
            # On one machine flock tells the truth: a heart of ours that is still there is that of a process that died.
            return False
        mark, now = (beat["host"], beat["process"], beat["beat"]), self._clock()
        if self._seen is None or self._seen[0] != mark:
            self._seen = (mark, now)
        return now - self._seen[1] < DEAD_SECONDS

    def _is_mine(self) -> bool:
        beat = self._read_beat()
        return (beat.get("host"), beat.get("process")) == (self._host, self._process)

    def _read_beat(self) -> dict[str, Any]:
        try:
            beat = json.loads(read_text(self._heart) or "{}")
        except (ValueError, RecursionError):
            return {}
        kinds = {"host": str, "process": str, "beat": int, "report": dict}
        is_one = isinstance(beat, dict) and all(isinstance(beat.get(name), kind) for name, kind in kinds.items())
        return beat if is_one else {}

    def _write_beat(self, report: dict[str, Any]) -> None:
        self._beats += 1
        beat = {"host": self._host, "process": self._process, "beat": self._beats, "report": report}
        temporary = self._folder / f".holder.{self._process}"
        temporary.write_text(json.dumps(beat))
        os.replace(temporary, self._heart)
