"""SHA256SUMS, as `sha256sum --check` reads it."""

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def checksums(folder: Path) -> str:
    """A line for each file below `folder`, by its path from there; not for the list itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    return "".join(f"{_sha256(path)}  {path.relative_to(folder)}\n" for path in files)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
