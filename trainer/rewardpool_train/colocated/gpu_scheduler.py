"""Whose turn a shared GPU is: the trainer's, or the reward model's. A pure function; `gpu.py` carries it out.

    the trainer computes -> wait. Samples whose rollouts have ended gather.
    the GPU is free      -> the trainer asks for it: it gets it
                         -> it does not, as when it waits for scores, and samples wait: wake, and score all of them
    the pool is awake    -> samples that wait go in, unless the trainer asks and they would take longer than a turn
                         -> nothing is left to score: sleep

A turn, a wake and a sleep, moves all weights over the bus twice and scores nothing. GPU work takes as long now as
later, so what can be saved is turns: samples are scored when the trainer cannot go on without them, and then as many of
them as there are. When the trainer asks for the GPU while others still wait, letting these in costs it n / rate
seconds; sending them away costs a later turn. So they go in while n / rate is at most a turn.

Of several ranks each chooses for itself. The trainer asks when all ranks have asked; from then on a rank that has the
GPU waits in a collective for the others, so no sample of theirs, however old, goes before their part of it.
"""

from dataclasses import dataclass
from typing import Literal

Choice = Literal["wait", "train", "wake", "admit", "sleep"]

POLL_SECONDS = 0.02
"""Between two looks at what other ranks do."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What turns cost, and how patient to be.

    Attributes:
        wake_seconds: To wake the pool: weights over the bus, a probe, back into the router's list.
        sleep_seconds: To put it to sleep, once nothing is in flight.
        samples_per_second: That the awake pool scores.
        patience_seconds: For which the GPU is free before the pool is woken, and idle before it sleeps. A training loop
            lets go of the GPU for moments between two operations.
        longest_wait_seconds: After which a sample goes before the trainer; None for never.
    """

    wake_seconds: float = 2.0
    sleep_seconds: float = 1.0
    samples_per_second: float = 50.0
    patience_seconds: float = 0.05
    longest_wait_seconds: float | None = None

    def __post_init__(self) -> None:
        if min(self.wake_seconds, self.sleep_seconds, self.patience_seconds) < 0 or self.samples_per_second <= 0:
            raise ValueError(
                "wake_seconds, sleep_seconds and patience_seconds must be at least 0, samples_per_second more"
            )
        if self.longest_wait_seconds is not None and self.longest_wait_seconds <= 0:
            raise ValueError("longest_wait_seconds must be greater than 0, or None")

    @property
    def turn_seconds(self) -> float:
        """A wake and a sleep."""
        return self.wake_seconds + self.sleep_seconds

    def is_overdue(self, waited_seconds: float) -> bool:
        """Return whether a sample that has waited so long goes before the trainer."""
        return self.longest_wait_seconds is not None and waited_seconds >= self.longest_wait_seconds


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Who has the GPU, and who waits for it.

    Attributes:
        trainer_has: The trainer computes.
        trainer_waits: It asks for the GPU.
        others_compute: Another rank has it for the trainer; known where this one has not and the pool is asleep.
        awake: The pool is.
        scoring: Samples that are at the pool.
        waiting: Samples that may not go there yet.
        waited_seconds: That the oldest of these waits.
        quiet_seconds: Since the trainer last computed or a sample was last at the pool.
    """

    trainer_has: bool = False
    trainer_waits: bool = False
    others_compute: bool = False
    awake: bool = False
    scoring: int = 0
    waiting: int = 0
    waited_seconds: float = 0.0
    quiet_seconds: float = 0.0


def choose(moment: Moment, costs: Costs) -> Choice:
    """Return what is to be done now."""
    if moment.trainer_has:
        return "wait"
    return _awake(moment, costs) if moment.awake else _asleep(moment, costs)


def seconds_until_due(moment: Moment, costs: Costs) -> float | None:
    """Return after how many seconds the choice may be another though nothing happens; None for never."""
    if moment.trainer_has or moment.scoring:
        return None
    if moment.others_compute:
        return POLL_SECONDS if moment.waiting else None
    due = []
    if (moment.waiting or moment.awake) and moment.quiet_seconds < costs.patience_seconds:
        due.append(costs.patience_seconds - moment.quiet_seconds)
    if moment.waiting and costs.longest_wait_seconds is not None:
        due.append(max(0.0, costs.longest_wait_seconds - moment.waited_seconds))
    return min(due, default=None)


def _awake(moment: Moment, costs: Costs) -> Choice:
    if moment.waiting and (not moment.trainer_waits or _may_go_first(moment, costs)):
        return "admit"
    if moment.scoring:
        return "wait"
    if moment.trainer_waits or moment.quiet_seconds >= costs.patience_seconds:
        return "sleep"
    return "wait"


def _asleep(moment: Moment, costs: Costs) -> Choice:
    if moment.others_compute:
        return "train" if moment.trainer_waits else "wait"
    if moment.waiting and costs.is_overdue(moment.waited_seconds):
        return "wake"
    if moment.trainer_waits:
        return "train"
    if moment.waiting and moment.quiet_seconds >= costs.patience_seconds:
        return "wake"
    return "wait"


def _may_go_first(moment: Moment, costs: Costs) -> bool:
    return moment.waiting / costs.samples_per_second <= costs.turn_seconds or costs.is_overdue(moment.waited_seconds)
