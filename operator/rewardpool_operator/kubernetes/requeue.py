"""How soon a pool is looked at again when no event comes. Pure.

Watches report everything in Kubernetes at once; looking again is for the routers, which report nothing by themselves.
While something goes on, that is every second. A quiet pool is looked at less and less often, up to a limit that grows
with the number of pools, so that a thousand quiet ones are sixty looks a second and not a thousand. One that scales is
looked at every second all the time while there are few: nobody else reports that the first request waits at it.

A look that finds nothing new takes about 2 ms of a processor, half of it to ask one router.
"""

import enum
from dataclasses import dataclass
from typing import Final, Self

from rewardpool_api.reasons import ConditionReason
from rewardpool_operator.plan import Plan

BUSY_SECONDS: Final = 1.0
"""While there is load, change or trouble: how long a router that lost its list is without workers, and how long more
load waits for more workers."""
VOLATILE_SECONDS: Final = 5.0
"""A status that differs in what changes all the time alone is written no more often than this."""
VOLATILE_WRITES_PER_SECOND: Final = 40
"""Of all pools together."""


AFTER_CHANGE_SECONDS: Final = 0.5
"""Until the next pass after one that wrote something: a step of a plan is often followed by another."""
_REPORTED_BY_WATCHES: Final = (ConditionReason.SCALING, ConditionReason.UNSCHEDULABLE)
"""Reasons of Progressing whose end a pod tells by itself; a pool may have them for days."""


class Outcome(enum.Enum):
    """What a pass came to, as far as the next one depends on it."""

    QUIET = enum.auto()
    BUSY = enum.auto()
    """There is load, or something is under way that no event will tell the end of."""
    CHANGED = enum.auto()
    """Something was written."""

    @classmethod
    def of(cls, plan: Plan, *, changed: bool) -> Self:
        """The outcome of a plan that was carried out."""
        status = plan.status
        loaded = status.load is not None and (status.load.in_flight or status.load.waiting)
        moving = plan.joins or plan.leaves or plan.drain or plan.undrain or plan.stop or status.draining_replicas
        progressing = status.condition("Progressing")
        rolling = progressing and progressing.status == "True" and progressing.reason not in _REPORTED_BY_WATCHES
        rotation = status.auth.rotation
        rotating = rotation is not None and rotation.phase != "Done"
        if changed:
            return cls.CHANGED
        return cls.BUSY if loaded or moving or rolling or rotating else cls.QUIET


@dataclass(frozen=True, kw_only=True)
class Rest:
    """How often a quiet pool is looked at in the end."""

    shortest: float
    """Seconds between two looks while there are few pools."""
    longest: float
    """Seconds between two looks, however many pools there are."""
    per_second: int
    """Looks at all of them together, until the longest is reached."""


FIXED: Final = Rest(shortest=3.0, longest=15.0, per_second=60)
"""Of a fixed size."""
SCALING: Final = Rest(shortest=1.0, longest=5.0, per_second=100)
"""Of a size that follows the load: the first request at one of a hundred pools at zero is seen within a second, at one
of a thousand within five."""


def seconds_between_volatile_writes(pools: int) -> float:
    """Seconds between two writes of a status of which nothing but that has changed."""
    return max(VOLATILE_SECONDS, pools / VOLATILE_WRITES_PER_SECOND)


def seconds_until_next(outcome: Outcome, *, quiet_for: float, scales: bool, pools: int) -> float:
    """Seconds until the next look.

    Args:
        outcome: what this one came to.
        quiet_for: seconds since there was load, change or trouble.
        scales: whether the pool's size follows its load.
        pools: how many there are.
    """
    if outcome is not Outcome.QUIET:
        return AFTER_CHANGE_SECONDS if outcome is Outcome.CHANGED else BUSY_SECONDS
    rest = SCALING if scales else FIXED
    longest = min(rest.longest, max(rest.shortest, pools / rest.per_second))
    # Half as long again as it has been quiet: grows by itself, without a count of passes. A thousand pools that are
    # made at once are all quiet between the events that they wait for.
    return min(longest, max(BUSY_SECONDS, quiet_for / 2, longest / 2))
