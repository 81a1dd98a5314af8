"""Input from outside, made fit to be decided on and reported: pure functions that take anything and never raise.

Pods' last words, events, annotations, Leases, statuses, routers' and workers' answers: whoever may run a container or
write an annotation may say anything in them. Text becomes bounded, printable and valid Unicode; a count becomes a count
or None. (Times: `rewardpool_api.times.time_of`.)
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, Literal

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
REDACTED: Final = "[key]"
SECRET_PART: Final = 12  # characters in a row that are taken for a part of a secret
MAX_COUNT: Final = 10**12  # sums of many fit into 64 bits
NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def printable(value: object, *, most: int, keep: Literal["head", "tail"] = "head") -> str:
    """Text of at most `most` characters that can be written to JSON, a log and a terminal."""
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:
        # Whatever an object does when it is printed.
        return REPLACEMENT
    text = text[:most] if keep == "head" else text[-most:] if most else ""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character in "\n\t" or character.isprintable() else REPLACEMENT for character in text)


def without_secrets(text: str, secrets: Iterable[str | None]) -> str:
    """The text without these secrets, and without parts of them that a cut may have left."""
    for secret in secrets:
        if secret and any(part in text for part in _parts(secret)):
            covered = [False] * len(text)
            for part in _parts(secret):
                start = text.find(part)
                while start >= 0:
                    covered[start : start + len(part)] = [True] * len(part)
                    start = text.find(part, start + 1)
            pieces = (
                REDACTED if hidden else "".join(character for _, character in run)
                for hidden, run in groupby(zip(covered, text, strict=True), key=itemgetter(0))
            )
            text = "".join(pieces)
    return text


def _parts(secret: str) -> Iterator[str]:
    return (secret[start : start + SECRET_PART] for start in range(len(secret) - SECRET_PART + 1))


def count_of(value: object) -> int | None:
    """A number of things; None for anything else, such as True, NaN, one below 0 or one that nobody has."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and 0 <= value <= MAX_COUNT else None
