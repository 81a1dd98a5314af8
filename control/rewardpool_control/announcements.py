"""Announcements of jobs, checked before they count: pure, and the same for Leases in a cluster and files on one
machine.

    renewed   `Renewals`: when that was, by this operator's clock
    read      `announcements`: sane and bounded, or with the problem that it has; no more than the status can show
    removed   `is_over`: it will not be renewed any more

An announcement may have any content, so nothing here is believed unchecked.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from math import isfinite
from typing import Final

from rewardpool_api.demand import LEASE_SECONDS, MAX_LEASE_SECONDS, MAX_SAMPLES, MAX_TOKENS, Demand, DemandError
from rewardpool_control.autoscaler.signals import Announcement

MOST: Final = 32
# A lapsed announcement is kept for people to see it, and for a trainer that comes back to find it as it was.
RETENTION: Final = timedelta(minutes=10)


@dataclass(frozen=True)
class Renewal:
    """The last time that an announcement was renewed."""

    written: datetime
    """By the clock of its keeper."""
    at: datetime
    """Time by this operator's clock, from which the announcement's times count."""
    excused_seconds: float = 0.0
    """Seconds since in which it could not be renewed; it lasts that much longer."""


class Renewals:
    """Renewals of announcements by this operator's own clock; kept from pass to pass."""

    def __init__(self) -> None:
        self._known: dict[str, Renewal] = {}

    def observe(self, written: Mapping[str, datetime], *, now: datetime) -> Mapping[str, Renewal]:
        """Record the present announcements, and forget those that are gone."""
        self._known = {name: self._renewal(name, time, now) for name, time in written.items()}
        return self._known

    def excuse(self, names: Iterable[str], *, now: datetime) -> None:
        """Extend these as if they were renewed now: they could not be, or that is not known."""
        for name in self._known.keys() & set(names):
            known = self._known[name]
            self._known[name] = replace(known, excused_seconds=(now - known.at).total_seconds())

    def _renewal(self, name: str, written: datetime, now: datetime) -> Renewal:
        # The keeper of the announcements (an API server, a file system) says by a clock of its own when each was
        # written. So that time is compared with itself: another one than at the last look was written just now. What
        # was there at the first look is as old as it says, for a restarted operator to decide as before; but not from
        # the future, or a dead trainer would live on for as long as the clocks differ.
        before = self._known.get(name)
        if before is None:
            return Renewal(written, min(written, now))
        return before if before.written == written else Renewal(written, now)


def lasting(stated: object) -> tuple[float, str]:
    """Return the seconds for which an announcement holds, and the corrections of that, in words."""
    if stated is None:
        return LEASE_SECONDS, f"it does not say how long it lasts: taken for {LEASE_SECONDS} s"
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not isfinite(stated) or stated <= 0:
        return LEASE_SECONDS, f"it says no sensible time that it lasts: taken for {LEASE_SECONDS} s"
    if stated > MAX_LEASE_SECONDS:
        return MAX_LEASE_SECONDS, f"it says that it lasts longer than {MAX_LEASE_SECONDS} s: cut to that"
    return float(stated), ""


@dataclass(frozen=True, kw_only=True)
class UnreadAnnouncement:
    """An announcement as it lies there, unread."""

    name: str
    made: str
    """Sorts announcements by the time of their making."""
    renewal: Renewal
    stated: object
    """Seconds that it is to last, as given: anything."""
    read: Callable[[], Demand]
    """The demand. Raises DemandError."""

    @property
    def seconds(self) -> float:
        """Seconds after its renewal for which it counts."""
        return lasting(self.stated)[0] + self.renewal.excused_seconds

    def has_lapsed(self, now: datetime) -> bool:
        return now >= self.renewal.at + timedelta(seconds=self.seconds)


def announcements(unread: Collection[UnreadAnnouncement], *, now: datetime) -> tuple[Announcement, ...]:
    """Return those that count, by name."""
    # Neither what is left of old jobs nor a flood of new ones pushes out a job that is under way.
    counted = sorted(unread, key=lambda one: (one.has_lapsed(now), one.made, one.name))[:MOST]
    return tuple(_read(one) for one in sorted(counted, key=lambda one: one.name))


def _read(unread: UnreadAnnouncement) -> Announcement:
    announcement = partial(Announcement, name=unread.name, renewed=unread.renewal.at, seconds=unread.seconds)
    try:
        demand = unread.read()
    except DemandError as error:
        return announcement(problem=str(error))
    notes = [lasting(unread.stated)[1]]
    for field, most in (("samples", MAX_SAMPLES), ("tokens", MAX_TOKENS)):
        if (getattr(demand, field) or 0) > most:
            demand = demand.model_copy(update={field: most})
            notes.append(f"it speaks of more than {most} {field}: cut to that")
    return announcement(demand=demand, note="; ".join(filter(None, notes)))


def is_over(announcement: Announcement, *, now: datetime) -> bool:
    """Return whether it may be removed: its job has ended, or has not renewed it for long."""
    if announcement.demand is not None and announcement.demand.phase == "Ended":
        return True
    return now >= announcement.renewed + timedelta(seconds=announcement.seconds) + RETENTION
