"""How a job's rollout, reward and training overlap: its schedule, and the settings of that."""

from dataclasses import dataclass

from rewardpool_train.pipeline.schedule import Order, ScheduleName


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """How rollout, reward and training overlap.

    Attributes:
        schedule: One of the five.
        order: Of complete groups; `prompt` makes a run repeatable whatever the timing of its scores.
        max_staleness: `fully_async`: how many versions old a group may be when it is trained on.
        publish_every: `fully_async`: updates from one publishing to the next, at most `max_staleness` + 1.
        groups_per_rollout: `fully_async`: groups of one call of `roll_out`, at most; None is a step's.
        rollouts_at_once: `fully_async`: calls of `roll_out` that may run at once; more than 1 for engines that batch
            continuously.

    Raises:
        ValueError: A number is out of its range.
    """

    schedule: ScheduleName = "minibatch"
    order: Order = "arrival"
    max_staleness: int = 1
    publish_every: int = 1
    groups_per_rollout: int | None = None
    rollouts_at_once: int = 1

    def __post_init__(self) -> None:
        if self.max_staleness < 0:
            raise ValueError(f"max_staleness is {self.max_staleness}; it must be at least 0")
        if not 1 <= self.publish_every <= self.max_staleness + 1:
            raise ValueError(
                f"publish_every is {self.publish_every}; it must be 1 to max_staleness + 1, which is "
                f"{self.max_staleness + 1}: the weights themselves would be older than a group may be"
            )
        if min(self.rollouts_at_once, self.groups_per_rollout or 1) < 1:
            raise ValueError("groups_per_rollout and rollouts_at_once must be at least 1")
