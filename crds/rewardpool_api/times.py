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
    if not isinstance(value, str):
        return None
    try:
        moment = from_rfc3339(value)
        is_possible = EARLIEST <= moment <= LATEST
    except (ValueError, OverflowError):
        return None
    return moment if is_possible else None


def read_time(value: object) -> datetime:
    """Return a time, or the time of an RFC 3339 text, in UTC.

    Raises:
        ValueError: it is neither, or has no zone.
    """
    moment = value if isinstance(value, datetime) and value.tzinfo is not None else time_of(value)
    if moment is None:
        raise ValueError("not an RFC 3339 time, such as 2026-01-01T12:00:00Z")
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
