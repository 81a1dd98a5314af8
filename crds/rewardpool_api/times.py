"""RFC 3339 times, as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta
from typing import Final

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Times beyond these cannot be added to."""
CLOCKS_DIFFER: Final = timedelta(minutes=1)
"""A time is not taken to be of the future for so much: clocks of machines differ."""


def rfc3339(moment: datetime) -> str:
    """UTC with microseconds and `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def from_rfc3339(text: str) -> datetime:
    """Timezone-aware time of an RFC 3339 text.

    Raises:
        ValueError: not such a text.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def time_of(value: object) -> datetime | None:
    """Return the time of an RFC 3339 text; None for anything else, and for a time that no calendar has.

    For what comes from outside: it never raises.
    """
    moment = _parsed(value)
    return moment if moment is not None and EARLIEST <= moment <= LATEST else None


def _parsed(value: object) -> datetime | None:
    try:
        return from_rfc3339(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def read_time(value: object) -> datetime:
    """Return a time, or the time of an RFC 3339 text, in UTC; the nearest that can be added to.

    Raises:
        ValueError: it is neither, or has no zone.
    """
    moment = value if isinstance(value, datetime) and value.tzinfo is not None else _parsed(value)
    if moment is None:
        raise ValueError("not an RFC 3339 time, such as 2026-01-01T12:00:00Z")
    # The schema takes them; one that is refused would hide the whole status.
    moment = max(EARLIEST, min(moment, LATEST))
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
