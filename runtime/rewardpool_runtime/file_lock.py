"""The kernel's lock on an open file, by which the processes of one machine tell who has something.

It is held by the open file and ends with the last process that has it open, however that ends.
"""

import fcntl
import time
from typing import IO, Any, Final

LOOK_SECONDS: Final = 0.02


def try_lock(file: IO[Any] | int, *, shared: bool = False) -> bool:
    """Lock an open file, or change the lock that it has; returns whether that was possible at once.

    Args:
        file: Or its descriptor.
        shared: Together with others that share it, else alone.

    Raises:
        OSError: The file system has no locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(file: IO[Any] | int, seconds: float) -> bool:
    """Lock an open file alone; returns whether that was possible within so many seconds. Raises as `try_lock`."""
    deadline = time.monotonic() + seconds
    while not try_lock(file):
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_SECONDS)  # the kernel's own wait has no deadline
    return True
