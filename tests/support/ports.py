"""Free ports of 127.0.0.1 for tests that give a program its port."""

import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FIRST = 10000
"""Below the ports that the kernel gives to connections and to `bind(0)`, and below those of the end-to-end run."""
SIZE = 500
BLOCKS = 20


@cache
def _block() -> tuple[Iterator[int], int]:
    """Return the ports of a block that this process alone has, and the lock on it, held until the process ends."""
    for block in range(BLOCKS):
        path = Path(tempfile.gettempdir(), f"rewardpool-test-ports-{block}")
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except PermissionError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        start = FIRST + block * SIZE
        return itertools.cycle(range(start, start + SIZE)), lock
    raise RuntimeError(f"{BLOCKS} processes hold every block of ports for tests")


def free_port() -> int:
    """Return a port that nothing listens on, and that no connection and no other run of tests gets meanwhile."""
    ports, _ = _block()
    for port in itertools.islice(ports, SIZE):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("every port of this process's block is in use")
