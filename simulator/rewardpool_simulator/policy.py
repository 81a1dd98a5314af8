"""What an autoscaler is to the simulator: it sees the fleet now and then, and says how many replicas it wants."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class View:
    """What an autoscaler may see of a fleet at one moment."""

    now: float
    """Seconds since the trace began."""
    in_flight: int
    """Requests at a ready replica."""
    waiting: int
    """Requests that the router holds because no replica is there to take them, or none has room."""
    per_replica: tuple[int, ...]
    """Requests at each ready replica; their sum is `in_flight`."""
    desired: int
    """Replicas that are wanted since the last decision."""
    ready: int
    """Replicas that take requests."""
    starting: int
    """Replicas that were made and are not ready yet."""

    @property
    def requests(self) -> int:
        """Requests there are, wherever they are."""
        return self.in_flight + self.waiting


class Policy(Protocol):
    """A stateful autoscaler without clock and chance: the same views in the same order get the same answers."""

    @property
    def name(self) -> str:
        """As tables and charts call it."""

    @property
    def period_seconds(self) -> float:
        """Until the next decision; asked after each one."""

    def decide(self, view: View) -> int:
        """Wanted replicas, from what is seen now and what was seen before. Bounds are the policy's own affair."""
