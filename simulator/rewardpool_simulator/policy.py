"""The interface of an autoscaler: it sees the fleet now and then, and returns how many replicas it wants."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class View:
    """View of a fleet that an autoscaler has at one moment."""

    now: float
    """Seconds since the trace began."""
    in_flight: int
    waiting: int
    """Requests that the router keeps because no ready replica has room."""
    desired: int
    """Replicas that the last decision wanted."""
    ready: int
    starting: int
    """Replicas that were created and are not ready yet."""
    draining: int = 0
    """Replicas that finish what they have, and end."""

    @property
    def requests(self) -> int:
        """Requests at replicas and at the router."""
        return self.in_flight + self.waiting


class Policy(Protocol):
    """A stateful autoscaler without clock or random numbers: equal views in equal order give equal decisions."""

    @property
    def name(self) -> str: ...

    @property
    def period_seconds(self) -> float:
        """Seconds to the next decision; read after each one."""

    def decide(self, view: View) -> int:
        """Return the wanted replicas, within the bounds that the policy keeps by itself."""
