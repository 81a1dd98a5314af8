"""Copies of functions' code, one for each that some revision of a pool is made of: a worker that starts again later, or
a revision that is gone back to, runs what it ran before, whatever became of the user's files.

    code/DIGEST/000/           stands for one of the user's folders: its files of the code are copied here,
                               and all else that is beside them is a link, so that data is found
    code/DIGEST/folders.json   which folder each of these stands for
    code.lock                  held while copies are added or removed
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rewardpool_local.function_code import CodeFile, FunctionCode
from rewardpool_runtime.file_lock import lock_within

LOCK_SECONDS: Final = 10.0  # to copy 64 MiB takes less
_FOLDERS: Final = "folders.json"


class CodeGoneError(Exception):
    """The copy that a revision is made of is not there any more."""


class CodeCopies:
    """The copies of one pool."""

    def __init__(self, pool_folder: Path) -> None:
        self._path = pool_folder / "code"
        self._lock = pool_folder / "code.lock"

    @contextmanager
    def locked(self, *, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Keep others from adding copies and from removing them.

        Raises:
            TimeoutError: another does so, and has for so many seconds.
        """
        with self._lock.open("ab") as lock:
            if not lock_within(lock, seconds):
                raise TimeoutError(f"another process has held {self._lock} for {seconds:g} s")
            yield

    def keep(self, code: FunctionCode, folders: Sequence[Path]) -> None:
        """Copy the code, unless it is kept already; the caller holds the lock.

        Args:
            code: Which may have no files.
        """
        target = self._path / code.digest
        if not code.files or target.exists():
            return
        self._path.mkdir(exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=self._path))
        by_folder: dict[int, list[CodeFile]] = {}
        for file in code.files:
            by_folder.setdefault(file.place.folder, []).append(file)
        names = {}
        for count, (folder, files) in enumerate(sorted(by_folder.items())):
            names[f"{count:03}"] = str(folders[folder])
            _copy(files, folders[folder], temporary / f"{count:03}")
        (temporary / _FOLDERS).write_text(json.dumps(names))
        temporary.rename(target)

    def originals(self, digest: str) -> dict[str, str]:
        """Return the folders of a copy in their order, each with the user's folder that it stands for.

        Raises:
            CodeGoneError: copy not found.
        """
        try:
            names: dict[str, str] = json.loads((self._path / digest / _FOLDERS).read_text())
        except FileNotFoundError:
            raise CodeGoneError(
                f"{self._path / digest} is gone, the code of a revision in use: `rewardpool restart` gives the pool"
                " today's code"
            ) from None
        return {str(self._path / digest / name): original for name, original in sorted(names.items())}

    def others(self, needed: Set[str]) -> list[str]:
        return sorted({path.name for path in self._path.glob("*")} - needed)

    def remove(self, digests: Sequence[str]) -> None:
        """The caller holds the lock."""
        for digest in digests:
            shutil.rmtree(self._path / digest)


def _copy(files: Sequence[CodeFile], source: Path, target: Path) -> None:
    copied = {file.place.path: file.content for file in files if file.content is not None}
    folders = {parent for path in copied for parent in path.parents} or {Path()}
    for folder in sorted(folders):
        (target / folder).mkdir(parents=True)
        for name in _names_in(source / folder):
            below = folder / name
            if below not in copied and below not in folders and name != "__pycache__":
                (target / below).symlink_to((source / below).absolute())
    for path, content in copied.items():
        (target / path).write_bytes(content)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except PermissionError:
        return []
