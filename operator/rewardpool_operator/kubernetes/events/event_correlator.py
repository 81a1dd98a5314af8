"""Correlation of a pool's news: a new event, a repeat, or nothing. Pure, without a clock.

`kubectl describe` should read as a story, and etcd should not be filled by a pool that flaps. So what is said again
within `SERIES_SECONDS` is counted in the event that said it first (the series of events.k8s.io/v1), a pool has `ROOM`
new events and gets another one every `REFILL_SECONDS`, and repairs of routers' lists are summed up.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rewardpool_api.reasons import EventReason
from rewardpool_control.plan import Event
from rewardpool_operator.metrics import Change

SERIES_SECONDS: Final = 600.0
COUNT_SECONDS: Final = 60.0
ROOM: Final = 50
REFILL_SECONDS: Final = 20.0
REPAIRS_SECONDS: Final = 60.0


@dataclass
class _Recorded:
    name: str
    count: int
    last_at: float
    written_at: float


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """An event that was said again, to be written as its series."""

    name: str
    count: int


@dataclass
class EventCorrelator:
    """Events recorded for one pool. Times are monotonic seconds."""

    _recorded: dict[Event, _Recorded] = field(default_factory=dict)
    _room: float = ROOM
    _refilled_at: float = 0.0

    def correlate(self, event: Event, *, now: float) -> Event | Repeat | None:
        """Return what to write for this piece of news: an event, the count of an earlier one, or None."""
        self._forget(now)
        known = self._recorded.get(event)
        if known is None:
            return self._new(event, now)
        known.count += 1
        known.last_at = now
        if now - known.written_at < COUNT_SECONDS:
            return None
        known.written_at = now
        return Repeat(name=known.name, count=known.count)

    def written(self, event: Event, name: str, *, now: float) -> None:
        self._recorded[event] = _Recorded(name=name, count=1, last_at=now, written_at=now)

    def gone(self, event: Event) -> None:
        self._recorded.pop(event, None)

    def _new(self, event: Event, now: float) -> Event | None:
        self._room = min(ROOM, self._room + (now - self._refilled_at) / REFILL_SECONDS)
        self._refilled_at = now
        if self._room < 1:
            return None
        self._room -= 1
        return event

    def _forget(self, now: float) -> None:
        self._recorded = {event: one for event, one in self._recorded.items() if now - one.last_at < SERIES_SECONDS}


@dataclass
class RepairTally:
    """Repairs of routers' lists that were not recorded yet."""

    joins: int = 0
    leaves: int = 0
    recorded_at: float = float("-inf")

    def add(self, change: Change) -> None:
        if change == "join":
            self.joins += 1
        else:
            self.leaves += 1

    def due(self, *, now: float) -> Iterable[Event]:
        """The event that sums them up, when it is time for one."""
        if not self.joins + self.leaves or now - self.recorded_at < REPAIRS_SECONDS:
            return ()
        parts = [f"{self.joins} workers put back"] if self.joins else []
        parts += [f"{self.leaves} strangers taken off"] if self.leaves else []
        self.joins = self.leaves = 0
        self.recorded_at = now
        message = f"the routers' worker lists were not as the operator had left them: {', '.join(parts)}"
        return (Event(type="Normal", reason=EventReason.ROUTERS_REPAIRED.value, message=message),)
