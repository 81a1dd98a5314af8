"""Source of the page's data: what it asks of a machine or a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rewardpool_api import RewardPool
from rewardpool_page.access import Viewer

MAX_LOG_BYTES: Final = 64 << 10


@dataclass(frozen=True, kw_only=True)
class PageWorker:
    """A replica, wherever it runs."""

    name: str
    phase: str
    """Ready, Starting, Draining, Asleep, Waiting, or what keeps it from starting."""
    place: str = ""
    revision: str = ""
    restarts: int = 0
    in_flight: int | None = None
    """Requests that it works on; None where nobody says."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of a pool's routers since they started."""

    answered: int
    seconds: float
    """From a request to its answer, summed over all of them."""
    within: Mapping[float, int]
    """Seconds -> requests that were answered within so many."""
    at: float | None = None
    """Unix time in seconds at which they said so; None for that of the look."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One pool at one look."""

    pool: RewardPool
    workers: Sequence[PageWorker]
    counts: Counts | None = None
    """None where the routers do not say."""
    logs: Sequence[str] = ()


class NotShownError(Exception):
    """There is no such log or manifest, or the viewer may not read it."""


class PoolsSource(Protocol):
    """A machine or a cluster."""

    where: str
    """In words, such as `on this machine`."""
    starts_by: str

    async def observe(self, *, counted: bool) -> Sequence[Seen]:
        """All pools as they are now.

        Args:
            counted: ask the routers for their counts.

        Raises:
            OSError: they cannot be read.
        """

    async def manifest(self, pool: str, viewer: Viewer) -> Mapping[str, Any]:
        """The object of the pool `namespace/name` as it is stored.

        Raises:
            NotShownError: there is none, or the viewer may not read it.
            OSError: it cannot be read now.
        """

    async def log(self, pool: str, name: str, viewer: Viewer) -> str:
        """The last `MAX_LOG_BYTES` of a log of the pool `namespace/name`, without the pool's keys.

        Raises:
            NotShownError: there is none of that name, or the viewer may not read it.
            OSError: it cannot be read now.
        """
