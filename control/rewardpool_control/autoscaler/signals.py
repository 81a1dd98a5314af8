"""Observations of a pool at one moment, for the autoscaler; metrics that are missing are None, never 0.

Routers count requests, and a request may have several samples in it, which is what replicas work on. How many, only
trainers know: neither router hands on, or counts by, anything that a request says of itself. `in_samples` makes samples
of what the routers counted, by what the jobs announce; `tokens_per_sample` is how long those are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from statistics import fmean
from typing import Final

from rewardpool_api.demand import Demand
from rewardpool_api.status import LoadStatus

# A router that hangs may hold many more by now.
STALE_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Work of one replica over the last seconds, in which it had something to do all the time."""

    worker: str
    rate: float
    """Requests that it answered in a second."""
    in_flight: int
    """Requests that it had meanwhile, at least; not 0."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A replica whose way from its making to its first score was seen."""

    worker: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """The latest announcement of a job."""

    name: str
    renewed: datetime
    """By the clock of `Signals.now`, or of the API server; never by the trainer's."""
    seconds: float
    demand: Demand | None = None
    problem: str | None = None
    note: str = ""

    def is_live(self, now: datetime) -> bool:
        if self.demand is None or self.demand.phase == "Ended":
            return False
        return now < self.renewed + timedelta(seconds=self.seconds)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Replicas that one pool of a budget wants and has."""

    pool: str
    """NAMESPACE/NAME."""
    total: int
    priority: int = 0
    wanted: int
    minimum: int = 0
    allocated: int
    """Replicas that there are, leaving ones too, or that are decided, whichever is more."""
    ending: int = 0
    stalled: bool = False
    yielded: bool = False


@dataclass(frozen=True, kw_only=True)
class Signals:
    """Input of the number of replicas, beside the spec and the last decision."""

    now: datetime
    """Timezone-aware, UTC."""
    pool: str = ""
    load: LoadStatus | None
    """Requests at the routers that say what they have; None when none does."""
    partial: bool = False
    """A router does not say what it has, or said it too long ago: `load` is the least there can be."""
    replicas: int = 0
    """Workers there are, leaving ones not counted; the size to hold where there was no decision before."""
    serving: int = 0
    unschedulable: str | None = None
    """Reason for which a worker fits nowhere, in the scheduler's words; None when all fit."""
    answered: int = 0
    throughputs: tuple[Throughput, ...] = ()
    starts: tuple[Start, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    there: int = 0
    """Replicas that there are, leaving ones too, or that are declared, whichever is more; for a budget."""
    ending: int = 0
    others: tuple[Claim, ...] = ()


def samples_per_request(announcements: Sequence[Announcement], *, now: datetime) -> float:
    """Mean of the jobs whose samples are coming; of all that live where there are none; 1 where none says it."""
    return fmean([demand.samples_per_request or 1.0 for demand in _in_flight(announcements, now)] or [1.0])


def tokens_per_sample(announcements: Sequence[Announcement], *, now: datetime) -> float | None:
    """Mean of the same jobs, as far as they say it; None where none does."""
    said = [demand.tokens_per_sample for demand in _in_flight(announcements, now)]
    return fmean(known) if (known := [one for one in said if one is not None]) else None


def tokens_per_request(announcements: Sequence[Announcement], *, now: datetime) -> float | None:
    """Mean of the same jobs; None where none says how long its samples are."""
    tokens = tokens_per_sample(announcements, now=now)
    return None if tokens is None else round(tokens * samples_per_request(announcements, now=now), 1)


def _in_flight(announcements: Sequence[Announcement], now: datetime) -> list[Demand]:
    live = [one.demand for one in announcements if one.demand is not None and one.is_live(now)]
    return [demand for demand in live if demand.phase == "Rollout"] or live


def in_samples(signals: Signals, *, each: float) -> Signals:
    """Return the signals with samples in place of requests, so many in each: in routers and in what replicas do."""
    load = signals.load
    return replace(
        signals,
        load=load and LoadStatus(in_flight=ceil(each * load.in_flight), waiting=ceil(each * load.waiting)),
        throughputs=tuple(
            replace(one, rate=each * one.rate, in_flight=ceil(each * one.in_flight)) for one in signals.throughputs
        ),
    )
