"""Digest of a trainer's tokenizer; workers compute that of their model by the same `digest_of_files`."""

from functools import partial
from pathlib import Path

from rewardpool_api.tokenizer_files import digest_of_files


def tokenizer_digest(source: str, *, revision: str | None) -> str | None:
    """Return the digest of a tokenizer that was loaded from there; None where its files are not found.

    Args:
        source: Folder or hub name.
        revision: Branch, tag or commit of the hub's repository; None for its main one.
    """
    try:
        return digest_of_files(partial(_read, source, revision or "main"))
    except (OSError, ValueError, ImportError):  # ValueError: neither a folder nor a hub's name
        return None


def _read(source: str, revision: str, name: str) -> bytes | None:
    path = _path(source, revision, name)
    return path.read_bytes() if path is not None and path.is_file() else None


def _path(source: str, revision: str, name: str) -> Path | None:
    if (folder := Path(source)).is_dir():
        return folder / name
    from huggingface_hub import try_to_load_from_cache  # comes with transformers, which loaded the tokenizer

    found = try_to_load_from_cache(source, name, revision=revision)
    return Path(found) if isinstance(found, str) else None
