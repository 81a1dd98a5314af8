"""RFC 3339 times, as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta
from typing import Final

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
