"""One model's folder of the cache, in the layout of the hub's own cache, which engines and `hf` know.

    blobs/NAME                  contents; NAME.incomplete while one is on its way
    snapshots/COMMIT/PATH       a link to its content for each file of a release
    refs/REVISION               the commit that a branch was when it was last looked at
    rewardpool/COMMIT.json      the release's record: its files, all there and checked, with their digests

S3 has the same layout, so an object that did not change between two listings is not fetched again.

Others may write to a cache. So an engine reads no folder of it but one of its own pod, with a link for each file of the
record, to contents whose digests were compared before it started.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from threading import Event
from typing import IO, Any, BinaryIO, cast

from rewardpool_worker.engine_side.download.digests import digest_of, is_digest
from rewardpool_worker.engine_side.download.errors import DownloadError
from rewardpool_worker.engine_side.download.plain_file import open_to_append, read_text
from rewardpool_worker.engine_side.download.release import Release, RemoteFile, RemoteModel

THREADS = 8


class StoppedError(RuntimeError):
    """Another file failed for good, so this one is left as it is, to be gone on with later."""


class _Partial:
    def __init__(self, file: IO[bytes], stop: Event) -> None:
        self._file = file
        self._stop = stop

    def write(self, data: bytes) -> int:
        if self._stop.is_set():
            raise StoppedError
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@dataclass(frozen=True)
class CheckedFile:
    """One file of a release, as a record has it."""

    name: str
    size: int
    """Bytes."""
    digest: str
    """`KIND:HEX`: what the server said, or the SHA-256 of what came where it said nothing."""


Record = Mapping[str, CheckedFile]


@dataclass(frozen=True)
class ModelFolder:
    """The folder of one model."""

    folder: Path
    records: Path | None = None
    """Folder of records and lock, where that is another one than `rewardpool` in the model's."""

    @property
    def own(self) -> Path:
        """Folder of RewardPool's own files, which the hub's layout does not have."""
        return self.records or self.folder / "rewardpool"

    def snapshot(self, commit: str) -> Path:
        return self.folder / "snapshots" / commit

    def record(self, commit: str) -> Record | None:
        """The record of a release; None where there is none that can be read."""
        try:
            files = json.loads(read_text(self._stamp(commit)) or "")["files"].items()
            found = {_safe(path): CheckedFile(_safe(one["name"]), one["size"], one["digest"]) for path, one in files}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, DownloadError):
            return None
        are_files = all(isinstance(one.size, int) and is_digest(one.digest) for one in found.values())
        return found if found and are_files else None

    def is_complete(self, commit: str) -> bool:
        """Return whether the release has a record, and all of its files in their sizes."""
        record = self.record(commit)
        return record is not None and all(_size(self._blob(one.name)) == one.size for one in record.values())

    def agrees(self, release: Release, digest: Callable[[RemoteFile], str | None]) -> bool:
        """Return whether the release's record is what its server says, where `digest` asks it."""
        record = self.record(release.commit) or {}
        if record.keys() != {file.path for file in release.files}:
            return False
        for file in release.files:
            one = record[file.path]
            if (one.name, one.size) != (file.name, file.size) or digest(file) not in (None, one.digest):
                return False
        return True

    def changed(self, record: Record, *, read: Callable[[int], object]) -> list[str]:
        """The files of a record whose contents are not those that it has; all are read, side by side."""

        def is_same(one: CheckedFile) -> bool:
            return _matches(self._blob(one.name), one.size, one.digest, read)

        with ThreadPoolExecutor(THREADS, thread_name_prefix="check") as threads:
            found = zip(record, threads.map(is_same, record.values()), strict=True)
            return [path for path, same in found if not same]

    def size(self, commit: str, record: Record | None) -> tuple[int, int]:
        """Bytes and number of files of a release that is there."""
        if record is not None:
            return sum(one.size for one in record.values()), len(record)
        sizes = [path.stat().st_size for path in self.snapshot(commit).rglob("*") if path.is_file()]
        return sum(sizes), len(sizes)

    def downloaded_bytes(self, release: Release) -> int:
        """Return the bytes of the release on the disk, finished or not."""
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
        self, source: RemoteModel, commit: str, file: RemoteFile, *, stop: Event, read: Callable[[int], object]
    ) -> str:
        """Put one content on the disk, checked.

        Returns:
            Its digest, for the record.

        Raises:
            DownloadError: it cannot be had, or is not what the server says it is; what was wrong is deleted.
            StoppedError: `stop` was set meanwhile.
        """
        blob, part = self._blob(file.name), self._partial(file.name)
        digest = source.digest(file)
        if _matches(blob, file.size, digest, read):
            return digest or digest_of(blob, file.size, "sha256", read)
        blob.unlink(missing_ok=True)
        blob.parent.mkdir(parents=True, exist_ok=True)
        begun = _size(part)
        if begun is None or begun > file.size:
            part.unlink(missing_ok=True)
        with open_to_append(part) as target:
            offset = target.tell()
            if offset < file.size:
                source.fetch(commit, file, cast(BinaryIO, _Partial(target, stop)), offset)
            target.flush()
            os.fsync(target.fileno())
        if not _matches(part, file.size, digest, read):
            part.unlink()
            raise DownloadError("ChecksumMismatch", f"{file.path} is not what the server says it is", attempts=2)
        part.replace(blob)
        return digest or digest_of(blob, file.size, "sha256", read)

    def finish(self, release: Release, digests: Mapping[str, str]) -> Record:
        """Link the contents into the release's folder, and record that all of it is there."""
        for file in release.files:
            entry, blob = self.snapshot(release.commit) / file.path, self._blob(file.name)
            if entry.is_symlink() and entry.resolve() == blob.resolve():
                continue
            entry.parent.mkdir(parents=True, exist_ok=True)
            _replace(entry, partial(os.symlink, os.path.relpath(blob, entry.parent)))
        record = {file.path: CheckedFile(file.name, file.size, digests[file.name]) for file in release.files}
        _write(self._stamp(release.commit), json.dumps({"files": {path: asdict(one) for path, one in record.items()}}))
        return record

    def remember(self, revision: str, commit: str) -> None:
        ref = self.folder / "refs" / _safe(revision)
        if (read_text(ref) or "").strip() != commit:
            _write(ref, commit)

    def last_known(self, revision: str) -> str | None:
        """Return the branch's last known commit, or the revision itself where it is one, if that is on the disk."""
        ref = self.folder / "refs" / _safe(revision)
        text = read_text(ref)
        commit = revision if text is None else text.strip()
        # It need not have been checked: somebody may have filled the cache where there is a network.
        return commit if self.snapshot(_safe(commit)).is_dir() else None

    def link(self, place: Path, commit: str, record: Record | None) -> None:
        """Make `place` lead to the release's files, to those of its record alone where it has one."""
        target = self.snapshot(commit)
        if record is not None:
            target = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
            for path, one in record.items():
                entry = target / path
                entry.parent.mkdir(parents=True, exist_ok=True)
                entry.symlink_to(self._blob(one.name))
        former = Path(os.readlink(place)) if place.is_symlink() else None
        _replace(place, partial(os.symlink, target))
        if former is not None and former.parent == place.parent:
            shutil.rmtree(former, ignore_errors=True)

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
        raise DownloadError("ModelNotFound", f"the server lists {path!r}, which is not a path inside a folder")
    return path


def _size(path: Path) -> int | None:
    """Bytes of a file that is no link: where one leads may be another place for the engine."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_size if S_ISREG(found.st_mode) else None


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
