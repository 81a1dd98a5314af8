"""What every peer is given alike: how much one replica shall hold, and how many replicas there may be."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PeerSettings:
    """The user's side of an autoscaler; all else stays at the peer's defaults.

    Raises:
        ValueError: the target is not positive, or the bounds contradict each other.
    """

    target_per_replica: float
    """Requests one replica shall hold, waiting ones included."""
    min_replicas: int
    max_replicas: int

    def __post_init__(self) -> None:
        if not self.target_per_replica > 0:
            raise ValueError(f"target_per_replica is {self.target_per_replica}; give a number above 0")
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            raise ValueError(
                f"min_replicas is {self.min_replicas} and max_replicas is {self.max_replicas}; "
                "give 0 <= min_replicas <= max_replicas and at least 1 as max_replicas"
            )

    def clamp(self, replicas: int) -> int:
        """Within the bounds."""
        return max(self.min_replicas, min(self.max_replicas, replicas))

    def at_least_one(self) -> "PeerSettings":
        """The same for a peer that cannot leave zero by itself, whose user would not let it go there."""
        return PeerSettings(
            target_per_replica=self.target_per_replica,
            min_replicas=max(1, self.min_replicas),
            max_replicas=self.max_replicas,
        )
