"""A lock between processes: two runs on one machine build the same binary, or pick a free network, only once."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.progress import Say


@contextmanager
def locked(path: Path, *, say: Say, deadline_seconds: float) -> Iterator[None]:
    """Hold the lock file at `path`; the kernel frees it when the holder ends, however it ends.

    Raises `TimeoutError` when another process keeps it for longer than `deadline_seconds`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + deadline_seconds
    with path.open("a") as file:
        waiting = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    say(f"waiting for another process that holds {path}")
                    waiting = True
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"{path} stayed locked by another process for {deadline_seconds:.0f} s"
                    ) from None
                time.sleep(0.2)
        yield
