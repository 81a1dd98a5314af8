"""Digests of a file's content, each the one a server names its files by.

sha256:HEX      the hub, for files it keeps in its large file storage
git:HEX         the hub, for the others: the object id that git gives a file
md5:HEX         S3, for an object that was uploaded in one piece
md5-SIZE:HEX    S3, for one uploaded in pieces of SIZE bytes: the MD5 of the pieces' MD5s
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

CHUNK_BYTES = 8 * 1024 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|git:[0-9a-f]{40}|md5(-[1-9][0-9]{0,15})?:[0-9a-f]{32}")


def is_digest(value: object) -> bool:
    """Return whether it is one of the four."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def digest_of(path: Path, size: int, kind: str, read: Callable[[int], object]) -> str:
    """The digest of a file's first `size` bytes.

    Args:
        size: its bytes.
        kind: what stands before the colon.
        read: told how many bytes were read, again and again.
    """
    chunks = _chunks(path, read)
    if kind.startswith("md5-"):
        return f"{kind}:{_of_pieces(chunks, int(kind.removeprefix('md5-')))}"
    if kind == "git":
        hashing = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    elif kind == "md5":
        hashing = hashlib.md5(usedforsecurity=False)
    else:
        hashing = hashlib.sha256()
    for chunk in chunks:
        hashing.update(chunk)
    return f"{kind}:{hashing.hexdigest()}"


def _of_pieces(chunks: Iterator[bytes], piece_bytes: int) -> str:
    pieces = hashlib.md5(usedforsecurity=False)
    piece, left = hashlib.md5(usedforsecurity=False), piece_bytes
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            piece.update(rest[:left])
            taken = min(left, len(rest))
            rest, left = rest[taken:], left - taken
            if left == 0:
                pieces.update(piece.digest())
                piece, left = hashlib.md5(usedforsecurity=False), piece_bytes
    if left < piece_bytes:
        pieces.update(piece.digest())
    return pieces.hexdigest()


def _chunks(path: Path, read: Callable[[int], object]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
            read(len(chunk))
