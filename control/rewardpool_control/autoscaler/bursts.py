"""The beat of the load itself: when bursts came, how large they were, and so when the next one comes.

A beat is believed after three bursts at about equal distances, and no longer than a while after the next one should
have come. Only unannounced bursts have one: a job that announces says itself when its next one comes, and
when it is dead there is none. What a job's bursts were worth is for those who announce: samples do not come evenly, so
a burst takes more than its total over its time.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median, median_high
from typing import Final

from rewardpool_api.status import Burst

MAX_BURSTS: Final = 16
PAUSE_SECONDS: Final = 10.0
LOOKED_AT: Final = 4
EVEN: Final = 0.2  # share by which a distance may differ from the usual one
PATIENCE: Final = 0.5  # share of the usual distance for which an overdue burst is waited for


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The next burst."""

    begins: datetime
    replicas: int
    every_seconds: float


@dataclass(frozen=True, kw_only=True)
class Height:
    """Requests of one moment, in replicas."""

    to_answer: int
    to_keep_up: int
    """Replicas to keep up with more of them, if they come like this for long."""
    settled_seconds: float
    """Seconds from a burst's begin until its requests are those that come, and not those that came at once."""


def learned(
    known: Sequence[Burst], *, requests: int, height: Height, jobs: Collection[str], now: datetime
) -> list[Burst]:
    """The bursts after one more look; `height` is what the requests are worth, `jobs` have samples to come."""
    last = known[-1] if known else None
    if requests == 0:
        return _ended(known, now)
    if last is None or _is_over(last, now):
        return _begun(known, height, jobs, now)
    whose = last.jobs or sorted(jobs)
    if jobs and set(jobs) != set(whose):
        # What several jobs take together is another thing than what one takes.
        return _begun(_ended(known, now), height, jobs, now)
    is_settled = now - last.begun >= timedelta(seconds=height.settled_seconds)
    worth = max(last.replicas, height.to_answer, height.to_keep_up if is_settled else 0)
    return [*known[:-1], last.model_copy(update={"ended": None, "replicas": worth, "jobs": whose})]


def _begun(known: Sequence[Burst], height: Height, jobs: Collection[str], now: datetime) -> list[Burst]:
    return [*known, Burst(begun=now, replicas=height.to_answer, jobs=sorted(jobs))][-MAX_BURSTS:]


def _ended(known: Sequence[Burst], now: datetime) -> list[Burst]:
    if not known or known[-1].ended is not None:
        return list(known)
    return [*known[:-1], known[-1].model_copy(update={"ended": now})]


def expected(known: Sequence[Burst], *, now: datetime) -> Expected | None:
    """Return the next unannounced burst; None while such bursts have no beat, or the last burst goes on."""
    newest = [burst for burst in known if not burst.jobs][-LOOKED_AT:]
    if not newest or not _is_over(known[-1], now):
        return None
    begun = [burst.begun for burst in newest]
    distances = [(later - before).total_seconds() for before, later in pairwise(begun)]
    if len(distances) < 2:
        return None
    usual = median(distances)
    if any(abs(distance - usual) > EVEN * usual for distance in distances):
        return None
    begins = begun[-1] + timedelta(seconds=usual)
    if now > begins + timedelta(seconds=PATIENCE * usual):
        return None
    return Expected(begins=begins, replicas=max(burst.replicas for burst in newest), every_seconds=usual)


def usual_worth(known: Sequence[Burst], jobs: Collection[str]) -> int:
    """Replicas that the last bursts of just these jobs were worth at their height; 0 without any."""
    heights = [burst.replicas for burst in known if burst.jobs == sorted(jobs) and burst.ended is not None]
    # One burst that found too small a fleet, and left a queue, is not the measure.
    return median_high(heights[-LOOKED_AT:]) if heights else 0


def _is_over(burst: Burst, now: datetime) -> bool:
    return burst.ended is not None and now - burst.ended >= timedelta(seconds=PAUSE_SECONDS)
