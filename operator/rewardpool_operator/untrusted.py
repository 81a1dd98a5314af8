"""What comes from outside, made fit to be decided on and reported: pure functions that take anything and never raise.

Pods' last words, events, annotations, Leases, statuses, routers' and workers' answers: whoever may run a container or
write an annotation may say anything in them. Text becomes bounded, printable and valid Unicode; a time becomes a time
or None; a count becomes a count or None. What makes no sense as a whole is left out by `left_out.py`.
"""

from datetime import UTC, datetime
from typing import Final, Literal

from rewardpool_operator.times import from_rfc3339

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
MAX_COUNT: Final = 10**12
"""More requests, restarts or bytes than this nobody has; and sums of many fit into 64 bits."""
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Times beyond these cannot be added to."""
NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading something that is not what it should be raises."""


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


def time_of(value: object) -> datetime | None:
    """The time of an RFC 3339 text; None for anything else, and for one that no calendar gets to."""
    if not isinstance(value, str):
        return None
    try:
        moment = from_rfc3339(value)
        is_possible = EARLIEST <= moment <= LATEST
    except (ValueError, OverflowError):
        return None
    return moment if is_possible else None


def count_of(value: object) -> int | None:
    """A number of things; None for anything else, such as True, NaN, one below 0 or one that nobody has."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and 0 <= value <= MAX_COUNT else None
