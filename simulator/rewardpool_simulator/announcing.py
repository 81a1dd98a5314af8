"""The demand that a simulated trainer announces, by the trainer plugin's own code.

A job knows its samples and steps from its configuration, and nothing of time: `Cadence` learns that. It renews its
announcement every few seconds until it ends or dies, and at once when something changes.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from rewardpool._demand.cadence import Cadence, GivenCadence
from rewardpool_api.demand import LEASE_SECONDS
from rewardpool_control.autoscaler.signals import Announcement
from rewardpool_simulator.events import Events
from rewardpool_simulator.trace import JobSpec, RecordedDemand

# The date of the simulator's second 0: the operator's code needs dates.
EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
RENEW_SECONDS: Final = LEASE_SECONDS / 3


def to_datetime(seconds: float) -> datetime:
    """Return the date of a simulated time."""
    return EPOCH + timedelta(seconds=seconds)


class SimulatedAnnouncer:
    """One job's announcements."""

    def __init__(self, job: JobSpec, events: Events, *, knows_samples: bool = True) -> None:
        """Without `knows_samples`, how many samples a step has is learned as well."""
        self.tokens_per_sample: float | None = None
        """None where the job does not know it."""
        self._job = job
        self._events = events
        self._cadence = Cadence(job.name, GivenCadence(samples=job.samples if knows_samples else None, steps=job.steps))
        self._started: float | None = None
        self._changed = 0.0
        self._stopped: float | None = None
        self._is_stalled = False
        self._last: Announcement | None = None

    def start(self) -> None:
        self._started = self._changed = self._events.now

    def rollout_begins(self) -> None:
        self._cadence.rollout_begins(self._change())

    def samples_come(self, samples: int, *, tokens: int | None = None) -> None:
        self._cadence.samples_come(self._events.now, samples, tokens=tokens)

    def update_begins(self) -> None:
        self._cadence.update_begins(self._change())

    def set_stalled(self, is_stalled: bool) -> None:
        if is_stalled != self._is_stalled:
            self._is_stalled = is_stalled
            self._cadence.waits(self._events.now, 1 if is_stalled else -1)

    def end(self) -> None:
        self._change()
        self._cadence.ends()

    def stop(self) -> None:
        self._stopped = self._events.now

    def announcement(self) -> Announcement | None:
        """Return the last announcement, or None where the job has made none yet or announces nothing."""
        if self._started is None or not self._job.announces:
            return None
        now = self._events.now if self._stopped is None else self._stopped
        rounds = (now - self._started) // RENEW_SECONDS
        at = max(self._changed, self._started + rounds * RENEW_SECONDS)
        renewed = to_datetime(at)
        if self._last is None or self._last.renewed != renewed:
            demand = self._cadence.demand(at).model_copy(update={"tokens_per_sample": self.tokens_per_sample})
            self._last = Announcement(name=self._job.name, renewed=renewed, seconds=LEASE_SECONDS, demand=demand)
        return self._last

    def _change(self) -> float:
        self._changed = self._events.now
        self._last = None
        return self._changed


def replayed_announcements(demands: Sequence[RecordedDemand], *, now: float) -> list[Announcement]:
    """Return the last recorded announcement of each job."""
    last = {one.demand.job: one for one in demands if one.at_seconds <= now}
    return [
        Announcement(name=job, renewed=to_datetime(one.at_seconds), seconds=LEASE_SECONDS, demand=one.demand)
        for job, one in last.items()
    ]
