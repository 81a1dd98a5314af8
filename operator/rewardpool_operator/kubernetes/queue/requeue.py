"""Time until the next pass over a pool when no event comes. Pure.

Watches report everything in Kubernetes at once; further passes are for the routers, which report nothing by themselves.
While something goes on, that is every second. A quiet pool is reconciled less and less often, up to a limit that grows
with the number of pools, so that a thousand quiet ones are a few passes a second and not a thousand. One that scales is
reconciled every second all the time while there are few, and one at zero four times a second: nothing else reports that
the first request waits at it.

A pass that finds nothing new takes about 2 ms of a processor, half of it to ask one router; with a thousand pools,
whose passes make their connections anew, some 8 ms.
"""

import enum
import math
from dataclasses import dataclass
from typing import Final, Self

from rewardpool_api import RewardPool
from rewardpool_api.reasons import ConditionReason
from rewardpool_control.plan import Plan

# How long a router that lost its list is without workers, and how long more load waits for more workers.
BUSY_SECONDS: Final = 1.0
FIRST_SCORE_SECONDS: Final = 0.1
AFTER_CHANGE_SECONDS: Final = 0.5
SOONER_SECONDS: Final = 1.5  # for a pool that was busy a moment ago
# A pod tells by itself when these end; a pool may have them for days.
_REPORTED_BY_WATCHES: Final = (ConditionReason.SCALING, ConditionReason.UNSCHEDULABLE)


class PassOutcome(enum.Enum):
    """Result of a pass, as far as the next one depends on it."""

    QUIET = enum.auto()
    BUSY = enum.auto()
    """There is load, or something is under way whose end no event reports."""
    CHANGED = enum.auto()
    ANSWER = enum.auto()
    """The first request at a pool at zero waits for its score, and nothing else."""

    @classmethod
    def from_plan(cls, plan: Plan, *, changed: bool) -> Self:
        status = plan.status
        loaded = status.load is not None and (status.load.in_flight or status.load.waiting)
        moving = plan.joins or plan.leaves or plan.drain or plan.undrain or plan.stop or status.draining_replicas
        progressing = status.condition("Progressing")
        rolling = progressing and progressing.status == "True" and progressing.reason not in _REPORTED_BY_WATCHES
        rotation = status.auth.rotation
        rotating = rotation is not None and rotation.phase != "Done"
        if status.first_score is not None and status.first_score.waits_for == "Answer":
            return cls.ANSWER
        if changed:
            return cls.CHANGED
        return cls.BUSY if loaded or moving or rolling or rotating else cls.QUIET


@dataclass(frozen=True)
class Pace:
    """Interval of something that is done for every pool."""

    shortest: float
    """Seconds from one time to the next while there are few pools."""
    longest: float
    per_second: float
    """Times of all of them together, until the longest is reached."""

    def seconds(self, pools: int) -> float:
        return min(self.longest, max(self.shortest, pools / self.per_second))


# A quiet pool of a fixed size. A pass would find a list that was changed by hand, and that load has come: watches
# report all else. With a thousand pools these passes are most of what an operator does.
FIXED: Final = Pace(3.0, 60.0, 16)
SCALING: Final = Pace(1.0, 5.0, 100)
# At size 0: the first request at one of 25 pools is seen within a quarter of a second, at one of a thousand within
# five.
AT_ZERO: Final = Pace(0.25, 5.0, 100)
# At size 0 with parked replicas, for which the first request waits only until it is seen.
PARKED: Final = Pace(0.1, 5.0, 100)
# From an event to its pass. The pods of many pools come one by one, and a thousand that start are as many passes as
# there are events.
GATHER: Final = Pace(0.05, 1.0, 1000)
# The same for a pod that was made or placed: it cannot be used yet. Two of three events of a pool that starts are of
# that kind.
ON_THE_WAY: Final = Pace(1.0, 5.0, 200)
FIGURES: Final = Pace(5.0, math.inf, 40)  # a status that differs only in what changes all the time
STEP: Final = Pace(1.0, 10.0, 100)  # from a step of a pool to its write, with all that came since
START: Final = Pace(5.0, 10.0, 100)  # the same for a pool that does not serve yet
SECRETS: Final = Pace(4.0, 120.0, 8)  # one hundredth of a core


_PAUSES: Final = {
    PassOutcome.ANSWER: FIRST_SCORE_SECONDS,
    PassOutcome.BUSY: BUSY_SECONDS,
}


def rest_of(pool: RewardPool) -> Pace:
    """Return the pace of passes over a quiet pool."""
    scaling = pool.status.scaling
    if pool.spec.autoscaling is None:
        return FIXED
    if scaling is None or scaling.desired or pool.spec.suspend:
        return SCALING
    return PARKED if pool.spec.autoscaling.parked else AT_ZERO


def seconds_until_next(outcome: PassOutcome, *, quiet_for: float, rest: Pace, pools: int) -> float:
    """Return the seconds until the next pass."""
    if outcome is PassOutcome.CHANGED:
        # With many pools what was written has events, and those are gathered: a pass before them finds nothing.
        return max(AFTER_CHANGE_SECONDS, GATHER.seconds(pools))
    if outcome is not PassOutcome.QUIET:
        return _PAUSES[outcome]
    longest = rest.seconds(pools)
    # Half as long again as it has been quiet: grows by itself, without a count of passes. A thousand pools that are
    # made at once are all quiet between the events that they wait for, so with many it is nearly the longest at once.
    return min(longest, max(BUSY_SECONDS, quiet_for / 2, longest - SOONER_SECONDS))
