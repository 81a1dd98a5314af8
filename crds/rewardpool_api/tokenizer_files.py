"""Digest of a tokenizer's files, by which a trainer's tokenizer is compared with that of a pool's model."""

import hashlib
from collections.abc import Callable
from typing import Final

FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")
"""Files of a fast tokenizer, and its chat template."""
SLOW_FILES: Final = ("tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "vocab.txt")
"""Files of a tokenizer without tokenizer.json."""


def digest_of_files(read: Callable[[str], bytes | None]) -> str | None:
    """Return a digest of a tokenizer and its chat template; None where no file of theirs is found.

    Args:
        read: Returns the content of a file by its name, or None; what it raises is raised.
    """
    found = {name: read(name) for name in FILES}
    if found[FILES[0]] is None:
        found |= {name: read(name) for name in SLOW_FILES}
    contents = {name: content for name, content in sorted(found.items()) if content is not None}
    if not contents:
        return None
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(b"%b %d\n" % (name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()[:16]
