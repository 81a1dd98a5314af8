"""Overlap of a job's rollout, reward and training: its schedule and the settings of the schedule."""

from dataclasses import dataclass

from rewardpool_train.pipeline.schedule import Order, ScheduleName


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Schedule of a job, with its settings.

    Attributes:
        order: Order in which complete groups are trained on; `prompt` makes a run repeatable whatever the timing of its
            scores.
        max_staleness: `fully_async`: maximum number of versions that a group may be old when it is trained on.
        publish_every: `fully_async`: updates between two transfers of weights, at most `max_staleness` + 1.
        groups_per_rollout: `fully_async`: maximum number of groups per call of `roll_out`; None is a step's.
        rollouts_at_once: `fully_async`: maximum number of concurrent calls of `roll_out`; more than 1 for engines with
            continuous batching.

    Raises:
        ValueError: A number is out of range.
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
