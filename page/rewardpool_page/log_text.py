"""A log as the page shows it: without keys, and without what only a terminal understands."""

import re
from collections.abc import Iterable
from typing import Final

KEY: Final = "[key]"
# Colours and control characters, but tabs and line feeds.
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")


def shown(text: str, keys: Iterable[str]) -> str:
    """The text with `[key]` in place of each of these keys."""
    # No program of ours prints them; a user's own function might.
    for key in keys:
        text = text.replace(key, KEY) if key else text
    return _ESCAPES.sub("", text)
