"""The keys that a worker accepts, and their rotation."""

import hmac
import logging
from pathlib import Path

from rewardpool_api.names import ENV_KEY_FILE, KEY_NAMES

log = logging.getLogger("rewardpool.worker")

Stamp = tuple[int, int, int]


class KeyFile:
    """The valid keys: of a file, and of those beside it named as in KEY_NAMES. Read again upon any change."""

    def __init__(self, path: Path | None) -> None:
        self._paths: tuple[Path, ...] = ()
        self._stamps: list[Stamp | None] = []
        self._keys: list[bytes] = []
        self._unreadable = False
        if path is None:
            log.warning("no %s: this worker scores for anybody who reaches its port", ENV_KEY_FILE)
            return
        self._paths = (path, *(path.with_name(name) for name in KEY_NAMES if name != path.name))
        try:
            self._read()
        except OSError as error:
            raise ValueError(f"{ENV_KEY_FILE} cannot be read: {error}") from None

    def admits(self, authorization: bytes | None) -> bool:
        """Return whether a request with this header may pass; every wrong key takes the same time."""
        if not self._paths:
            return True
        self._refresh()
        scheme, _, given = (authorization or b"").partition(b" ")
        # A list, so that all of them are compared whichever fits.
        fits = [hmac.compare_digest(given.strip(), key) for key in self._keys]
        return any(fits) and scheme.lower() == b"bearer"

    def _refresh(self) -> None:
        try:
            if [_stamp(path) for path in self._paths] != self._stamps:
                self._read()
            self._unreadable = False
        except (OSError, ValueError) as error:
            if not self._unreadable:
                log.warning("the key file cannot be read again, the last key stays valid: %s", error)
            # A failed rotation closes nothing and opens nothing.
            self._unreadable = True

    def _read(self) -> None:
        stamps = [_stamp(path) for path in self._paths]
        first, *others = (
            path.read_bytes().strip() if stamp or not index else b""
            for index, (path, stamp) in enumerate(zip(self._paths, stamps, strict=True))
        )
        if not first:
            raise ValueError(f"{ENV_KEY_FILE} {self._paths[0]} is empty")
        self._keys, self._stamps = [first, *filter(None, others)], stamps


def _stamp(path: Path) -> Stamp | None:
    """Changes with the file behind the path; None where there is none."""
    # Not with the path: Kubernetes replaces a mounted Secret's files by switching a link.
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
