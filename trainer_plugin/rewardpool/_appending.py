"""Appending to a file so that a write that fails leaves nothing of itself."""

import os


def write_whole(fd: int, data: bytes, *, at: int) -> None:
    """Write all of the bytes at that place, the end of the file. Raises OSError; the file ends there as before."""
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(fd, data[written:], at + written)
    except OSError:
        os.ftruncate(fd, at)
        raise
