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
    desired: int
    ready: int
    starting: int
    draining: int = 0

    @property
    def requests(self) -> int:
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
