"""Files that a user names, or `-` for standard input; one that cannot be read is refused by its path."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from rewardpool_api import RewardPool, load_manifest
from rewardpool_cli.errors import RefusedError

STANDARD_INPUT: Final = Path("-")
MAX_BYTES: Final = 64 << 20

ManifestFile = Annotated[
    Path, typer.Option("--file", "-f", metavar="FILE", help="The manifest, as for kubectl apply; - is standard input.")
]


def read_bytes(path: Path) -> bytes:
    """All of a file, or of standard input.

    Raises:
        RefusedError: file not found, it cannot be read, or it has more than `MAX_BYTES`.
    """
    try:
        if path == STANDARD_INPUT:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise RefusedError(f"there is no file {path}; give the path of one, or - for standard input") from None
    except IsADirectoryError:
        raise RefusedError(f"{path} is a folder; give the path of a file") from None
    except PermissionError:
        raise RefusedError(f"{path} cannot be read: permission denied; let this user read it") from None
    except (OSError, ValueError) as error:  # ValueError: no path, since it holds a zero byte
        why = error.strerror if isinstance(error, OSError) else error
        raise RefusedError(f"{path} cannot be read: {why}; give another file") from None
    if len(content) > MAX_BYTES:
        raise RefusedError(f"{named(path)} has more than {MAX_BYTES} bytes; give a smaller file")
    return content


def read_text(path: Path) -> str:
    """The same as text in UTF-8.

    Raises:
        RefusedError: as `read_bytes`, or it is not such a text.
    """
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise RefusedError(
            f"{named(path)} is not text in UTF-8 (byte {error.start + 1}): save it as UTF-8, or give another file"
        ) from None


def folder_of_file(path: Path) -> Path:
    """The folder that a file is in, whichever links led to it; of standard input, the current one."""
    return Path.cwd() if path == STANDARD_INPUT else path.resolve().parent


def named(path: Path) -> str:
    """Return the file's name for messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def read_pool(path: Path) -> RewardPool:
    """The RewardPool of a manifest.

    Raises:
        RefusedError: it cannot be read.
        ManifestError: it is none.
    """
    return load_manifest(read_bytes(path), origin=named(path))
