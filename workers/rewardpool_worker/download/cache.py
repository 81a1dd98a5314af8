"""One model's folder of the cache, in the layout of the hub's own cache, which engines and `hf` know.

    blobs/NAME                  contents; NAME.incomplete while one is on its way
    snapshots/COMMIT/PATH       a link to its content for each file of a release
    refs/REVISION               the commit that a branch was when it was last looked at
    rewardpool/COMMIT.json      all files of the release are there and were checked: written last

S3 has the same layout, so an object that did not change between two listings is not fetched again.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any, BinaryIO, cast

from .digests import digest_of
from .errors import DownloadError
from .release import Release, RemoteFile, Source


class StoppedError(RuntimeError):
    """Another file failed for good, so this one is left as it is, to be gone on with later."""


class _Partial:
    """A file that takes bytes until told to stop, from whatever thread it is fed."""

    def __init__(self, file: BinaryIO, stop: Event) -> None:
        self._file = file
        self._stop = stop

    def write(self, data: bytes) -> int:
        if self._stop.is_set():
            raise StoppedError
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@dataclass(frozen=True)
class ModelCache:
    """The folder of one model."""

    folder: Path

    @property
    def own(self) -> Path:
        """What is ours and not of the hub's layout."""
        return self.folder / "rewardpool"

    def snapshot(self, commit: str) -> Path:
        """The folder of a release."""
        return self.folder / "snapshots" / commit

    def is_complete(self, commit: str) -> bool:
        """Whether the release was checked, and nobody has taken files away since (by size alone, this time)."""
        stamp = self._stamp(commit)
        if not stamp.is_file():
            return False
        files = json.loads(stamp.read_text())["files"]
        return all(_size(self.snapshot(commit) / path) == size for path, size in files.items())

    def size(self, commit: str) -> tuple[int, int]:
        """Bytes and number of files of a release that is there."""
        sizes = [size for path in self.snapshot(commit).rglob("*") if (size := _size(path)) is not None]
        return sum(sizes), len(sizes)

    def downloaded_bytes(self, release: Release) -> int:
        """What of the release is on the disk, finished or not."""
        return sum(
            min(size, max(_size(self._blob(name)) or 0, _size(self._partial(name)) or 0))
            for name, size in release.contents.items()
        )

    def prepare(self, release: Release) -> None:
        """See that the release can be had here, before the first byte.

        Raises:
            DownloadError: what is missing of it does not fit, or a path leads out of its folder.
        """
        for file in release.files:
            _safe(file.path)
        self.own.mkdir(parents=True, exist_ok=True)
        missing = release.size - self.downloaded_bytes(release)
        free = shutil.disk_usage(self.own).free
        if missing > free:
            raise DownloadError(
                "DiskFull",
                f"the model takes {missing / 1e9:.1f} GB more and the cache has {free / 1e9:.1f} GB left: "
                "give spec.model.cache a larger claim",
            )

    def fetch(
        self, source: Source, commit: str, file: RemoteFile, *, stop: Event, read: Callable[[int], object]
    ) -> None:
        """Have one content on the disk, checked.

        Raises:
            DownloadError: it cannot be had, or is not what the server says it is; what was wrong is deleted.
            StoppedError: `stop` was set meanwhile.
        """
        blob, part = self._blob(file.name), self._partial(file.name)
        digest = source.digest(file)
        if _size(blob) == file.size and _matches(blob, file.size, digest, read):
            return
        blob.unlink(missing_ok=True)
        blob.parent.mkdir(parents=True, exist_ok=True)
        if (_size(part) or 0) > file.size:
            part.unlink()
        with part.open("ab") as target:
            offset = target.tell()
            if offset < file.size:
                source.fetch(commit, file, cast(BinaryIO, _Partial(target, stop)), offset)
            target.flush()
            os.fsync(target.fileno())
        if not _matches(part, file.size, digest, read):
            part.unlink()
            raise DownloadError("ChecksumMismatch", f"{file.path} is not what the server says it is", attempts=2)
        part.replace(blob)

    def finish(self, release: Release) -> None:
        """Link the contents into the release's folder, and say that all of it is there."""
        for file in release.files:
            entry = self.snapshot(release.commit) / file.path
            if _size(entry) == file.size:
                continue
            entry.parent.mkdir(parents=True, exist_ok=True)
            _replace(entry, partial(os.symlink, os.path.relpath(self._blob(file.name), entry.parent)))
        _write(self._stamp(release.commit), json.dumps({"files": {file.path: file.size for file in release.files}}))

    def remember(self, revision: str, commit: str) -> None:
        """Note what a branch was."""
        _write(self.folder / "refs" / _safe(revision), commit)

    def last_known(self, revision: str) -> str | None:
        """What the branch was when it was last looked at, or the revision itself if it is a commit, if that is there.

        It need not have been checked: somebody may have filled the cache where there is a network.
        """
        ref = self.folder / "refs" / _safe(revision)
        commit = ref.read_text().strip() if ref.is_file() else revision
        return commit if self.snapshot(_safe(commit)).is_dir() else None

    def link(self, place: Path, commit: str) -> None:
        """Make `place` a link to the release's folder."""
        _replace(place, partial(os.symlink, self.snapshot(commit)))

    def _blob(self, name: str) -> Path:
        return self.folder / "blobs" / _safe(name)

    def _partial(self, name: str) -> Path:
        return self.folder / "blobs" / f"{_safe(name)}.incomplete"

    def _stamp(self, commit: str) -> Path:
        return self.own / f"{_safe(commit)}.json"


def _safe(path: str) -> str:
    """A server's path, if it stays inside the folder it is put into."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise DownloadError("ModelNotFound", f"the server lists {path!r}, which is no path inside a folder")
    return path


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _matches(path: Path, size: int, digest: str | None, read: Callable[[int], object]) -> bool:
    if _size(path) != size:
        return False
    return digest is None or digest_of(path, size, digest.partition(":")[0], read) == digest


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, lambda temporary: temporary.write_text(text))


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    """Make a new entry beside the old one and put it there in one step: nobody ever sees half of it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    make(temporary)
    os.replace(temporary, path)
