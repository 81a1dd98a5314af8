"""A release of a model: its files, and where they come from."""

from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True)
class RemoteFile:
    """One file of a release."""

    path: str
    """Inside the release's folder, with `/`."""
    size: int
    """Bytes."""
    name: str
    """Name of the content in the cache: files of the same name have the same content."""


@dataclass(frozen=True)
class Release:
    """All files of a model at one moment."""

    commit: str
    """Identity of the release: the hub's commit, or the digest of an S3 listing."""
    files: tuple[RemoteFile, ...]

    @property
    def contents(self) -> dict[str, int]:
        """Names of the different contents, with their bytes."""
        return {file.name: file.size for file in self.files}

    @property
    def size(self) -> int:
        """Bytes of the different contents."""
        return sum(self.contents.values())


class RemoteModel(Protocol):
    """A model at the hub or in a store. Its methods raise `DownloadError`, or `OSError` of this machine's disk."""

    @property
    def folder(self) -> str:
        """Name of the model's folder in the cache."""

    @property
    def revision(self) -> str:
        """Name of the branch that is resolved where no commit is pinned; a file name."""

    def release(self, commit: str | None) -> Release:
        """The files of the pinned commit, or of what the revision is at this moment."""

    def fetch(self, commit: str, file: RemoteFile, target: BinaryIO, offset: int) -> None:
        """Append the file's bytes from `offset` on; `target` has those before."""

    def digest(self, file: RemoteFile) -> str | None:
        """`KIND:HEX` as `digests.py` computes it; None where the server has none, and then the size has to do."""
