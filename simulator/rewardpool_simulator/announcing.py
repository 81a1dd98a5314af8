"""What a simulated trainer announces: what the trainer plugin makes of the same moments, by the plugin's own code.

It knows its samples and steps from its configuration, and nothing of time; that `Cadence` learns. The job renews its
word every few seconds until it ends or dies, and at once when something changes.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from rewardpool.demand.cadence import Cadence, Plan
from rewardpool_api.demand import LEASE_SECONDS
from rewardpool_operator.autoscaler.signals import Announcement
from rewardpool_simulator.events import Events
from rewardpool_simulator.trace import JobSpec, RecordedDemand

BEGINNING: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""The moment that the simulator's second 0 is, for whoever uses dates."""
RENEW_SECONDS: Final = LEASE_SECONDS / 3


def moment(seconds: float) -> datetime:
    """The date of a simulated time."""
    return BEGINNING + timedelta(seconds=seconds)


class Announcer:
    """One job's demand as it would announce it."""

    def __init__(self, job: JobSpec, events: Events) -> None:
        self._job = job
        self._events = events
        self._cadence = Cadence(job.name, Plan(samples=job.samples, steps=job.steps))
        self._started: float | None = None
        self._changed = 0.0
        self._fell_silent: float | None = None
        self._is_stalled = False
        self._last: Announcement | None = None

    def start(self) -> None:
        """The job begins to load."""
        self._started = self._changed = self._events.now

    def rollout_begins(self) -> None:
        """The policy begins to generate."""
        self._cadence.rollout_begins(self._change())

    def samples_come(self, samples: int) -> None:
        """So many are given to the client."""
        self._cadence.samples_come(self._events.now, samples)

    def update_begins(self) -> None:
        """All scores are there, and no rollout goes on."""
        self._cadence.update_begins(self._change())

    def stall(self, is_stalled: bool) -> None:
        """The trainer begins or ceases to wait for scores alone."""
        if is_stalled != self._is_stalled:
            self._is_stalled = is_stalled
            self._cadence.waits(self._events.now, 1 if is_stalled else -1)

    def end(self) -> None:
        """No more samples will come."""
        self._change()
        self._cadence.ends()

    def fall_silent(self) -> None:
        """The job is dead."""
        self._fell_silent = self._events.now

    def announcement(self) -> Announcement | None:
        """The last one; None where nothing was yet, and of a job that announces nothing."""
        if self._started is None or not self._job.announces:
            return None
        now = self._events.now if self._fell_silent is None else self._fell_silent
        rounds = (now - self._started) // RENEW_SECONDS
        at = max(self._changed, self._started + rounds * RENEW_SECONDS)
        renewed = moment(at)
        if self._last is None or self._last.renewed != renewed:
            demand = self._cadence.demand(at)
            self._last = Announcement(name=self._job.name, renewed=renewed, seconds=LEASE_SECONDS, demand=demand)
        return self._last

    def _change(self) -> float:
        self._changed = self._events.now
        self._last = None
        return self._changed


def replayed(demands: Sequence[RecordedDemand], *, now: float) -> list[Announcement]:
    """The last announcement of each job, as a recording has it."""
    last = {one.demand.job: one for one in demands if one.at_seconds <= now}
    return [
        Announcement(name=job, renewed=moment(one.at_seconds), seconds=LEASE_SECONDS, demand=one.demand)
        for job, one in last.items()
    ]
