"""Files of a folder that others may write to: what is a link or a pipe is not opened, so nothing hangs."""

import errno
import os
from pathlib import Path
from stat import S_ISREG
from typing import IO

MOST_TEXT_BYTES = 32 << 20  # a record of ten thousand files takes two MiB


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file for writing at its end, new where there is none.

    Raises:
        OSError: it cannot be opened, or something else has its name.
    """
    # A pipe without a reader is refused at once, and a link by the system.
    return _plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "ab")


def read_text(path: Path) -> str | None:
    """Return the text of a file; None where there is none, or something else has its name.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with _plain(path, os.O_RDONLY, "rb") as file:
            return file.read(MOST_TEXT_BYTES).decode()
    except (FileNotFoundError, NotPlainError, UnicodeDecodeError):
        return None


class NotPlainError(OSError):
    """Something else than a file has the name."""


def _plain(path: Path, flags: int, mode: str) -> IO[bytes]:
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise NotPlainError(
                error.errno, "it is a link, a folder or a pipe, and no file: remove it", str(path)
            ) from None
        raise
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlainError(errno.EINVAL, "it is a folder, a pipe or a device, and no file: remove it", str(path))
    return os.fdopen(descriptor, mode)
