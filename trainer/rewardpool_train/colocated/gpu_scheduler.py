"""Turns of a shared GPU: the trainer's or the reward model's. A pure function; `gpu.py` carries it out.

    the trainer computes -> wait, while samples whose rollouts have ended gather
    the GPU is free      -> the trainer requests it: train
                         -> only samples wait, as when the trainer waits for scores: wake, and score all of them
    the pool is awake    -> samples wait: admit them, unless the trainer waits and they would take longer than a turn
                         -> nothing is left to score: sleep

A turn (a wake and a sleep) moves all weights over the bus twice and scores nothing. GPU work takes the same time now or
later, so the only saving is fewer turns: samples are scored when the trainer cannot continue without them, and then all
of them. When the trainer requests the GPU while n samples still wait, admitting these costs n / rate seconds, and
sending them away costs a later turn. So they are admitted while n / rate is at most a turn.

Each rank chooses for itself. The trainer requests the GPU when all ranks have; from then on a rank that has it waits in
a collective for the others, so no sample of theirs, however old, goes before their part of the operation.
"""

from dataclasses import dataclass
from typing import Literal

Choice = Literal["wait", "train", "wake", "admit", "sleep"]

POLL_SECONDS = 0.02  # interval of checks on the other ranks


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs of a turn, and the limits of waiting.

    Attributes:
        wake_seconds: Time to wake the pool: weights over the bus, a probe, back into the router's list.
        sleep_seconds: Time to put the pool to sleep, once nothing is in flight.
        samples_per_second: Rate of the awake pool.
        patience_seconds: Time for which the GPU must be free before the pool wakes, and idle before it sleeps. A
            training loop frees the GPU for moments between two operations.
        longest_wait_seconds: Time after which a sample goes before the trainer; None for never.
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
        return self.wake_seconds + self.sleep_seconds

    def is_overdue(self, waited_seconds: float) -> bool:
        """Return whether a sample that has waited this long goes before the trainer."""
        return self.longest_wait_seconds is not None and waited_seconds >= self.longest_wait_seconds


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Use of the GPU, and the requests for it.

    Attributes:
        others_compute: Another rank computes; only known while this one does not and the pool is asleep.
        scoring: Number of samples at the pool.
        waiting: Number of samples that wait for the pool.
        waited_seconds: Waiting time of the oldest of these.
        quiet_seconds: Time since the trainer last computed or a sample was last at the pool.
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
    """Return the next step."""
    if moment.trainer_has:
        return "wait"
    return _awake(moment, costs) if moment.awake else _asleep(moment, costs)


def seconds_until_due(moment: Moment, costs: Costs) -> float | None:
    """Return after how many seconds the choice may change without an event; None for never."""
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
