"""The beat of the load itself: when bursts came, how large they were, and so when the next one comes.

For pools whose trainers announce nothing. A beat is believed after three bursts at about equal distances, and no longer
than a while after the next one should have come.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Final

from rewardpool_api.status import Burst
from rewardpool_operator.times import from_rfc3339, rfc3339

KEPT: Final = 8
"""Bursts in the status."""
PAUSE_SECONDS: Final = 10.0
"""Silence that ends a burst; shorter ones are breaths within it."""
LOOKED_AT: Final = 4
"""The newest bursts, by which the next one is expected."""
EVEN: Final = 0.2
"""Share by which a distance may differ from the usual one."""
PATIENCE: Final = 0.5
"""Share of the usual distance for which an overdue burst is waited for."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The next burst."""

    begins: datetime
    replicas: int
    """As many as the last bursts were worth, at most."""
    every_seconds: float


def learned(known: Sequence[Burst], *, requests: int, replicas: int, now: datetime) -> list[Burst]:
    """The bursts after one more look.

    Args:
        known: up to now, oldest first.
        requests: at the routers.
        replicas: what they are worth.
        now: of the look.
    """
    last = known[-1] if known else None
    if requests == 0:
        if last is None or last.ended is not None:
            return list(known)
        return [*known[:-1], last.model_copy(update={"ended": rfc3339(now)})]
    if last is None or _is_over(last, now):
        return [*known, Burst(begun=rfc3339(now), replicas=replicas)][-KEPT:]
    goes_on = last.model_copy(update={"ended": None, "replicas": max(last.replicas, replicas)})
    return [*known[:-1], goes_on]


def expected(known: Sequence[Burst], *, now: datetime) -> Expected | None:
    """The next burst; None while there is no beat."""
    newest = known[-LOOKED_AT:]
    begun = [from_rfc3339(burst.begun) for burst in newest]
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


def _is_over(burst: Burst, now: datetime) -> bool:
    return burst.ended is not None and now - from_rfc3339(burst.ended) >= timedelta(seconds=PAUSE_SECONDS)
