"""Digest of a tokenizer's files, by which a trainer's tokenizer is compared with that of a pool's model.

Workers compute it in the same way: `tokenizer_digest` in `engine_side/middleware/checkpoint.py`, which is mounted into
images without this package.
"""

import hashlib
from pathlib import Path

FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")
"""Files of a fast tokenizer, and its chat template."""
SLOW_FILES = ("tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "vocab.txt")
"""Files of a tokenizer without tokenizer.json."""


def tokenizer_digest(source: str, *, revision: str | None) -> str | None:
    """Return the digest of a tokenizer that was loaded from there; None where its files are not found.

    Args:
        source: Folder or hub name.
        revision: Branch, tag or commit of the hub's repository; None for its main one.
    """
    try:
        found = _read(source, revision or "main", FILES)
        if FILES[0] not in found:
            found |= _read(source, revision or "main", SLOW_FILES)
    except (OSError, ValueError, ImportError):  # ValueError: neither a folder nor a hub's name
        return None
    if not found:
        return None
    digest = hashlib.sha256()
    for name, content in sorted(found.items()):
        digest.update(b"%b %d\n" % (name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()[:16]


def _read(source: str, revision: str, names: tuple[str, ...]) -> dict[str, bytes]:
    paths = {name: _path(source, revision, name) for name in names}
    return {name: path.read_bytes() for name, path in paths.items() if path is not None and path.is_file()}


def _path(source: str, revision: str, name: str) -> Path | None:
    if (folder := Path(source)).is_dir():
        return folder / name
    from huggingface_hub import try_to_load_from_cache  # comes with transformers, which loaded the tokenizer

    found = try_to_load_from_cache(source, name, revision=revision)
    return Path(found) if isinstance(found, str) else None
