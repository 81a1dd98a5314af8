"""How soon a pool is looked at again when no event comes. Pure.

Watches report everything in Kubernetes at once; looking again is for the routers, which report nothing by themselves.
While something goes on, that is every second. A quiet pool is looked at less and less often, up to a limit that grows
with the number of pools, so that a thousand quiet ones are a few looks a second and not a thousand. One that scales is
looked at every second all the time while there are few, and one at zero four times a second: nobody else reports that
the first request waits at it.

A look that finds nothing new takes about 2 ms of a processor, half of it to ask one router; with a thousand pools,
whose looks make their connections anew, some 8 ms.
"""

import enum
from dataclasses import dataclass
from typing import Final, Self

from rewardpool_api import RewardPool
from rewardpool_api.reasons import ConditionReason
from rewardpool_operator.plan import Plan

BUSY_SECONDS: Final = 1.0
"""While there is load, change or trouble: how long a router that lost its list is without workers, and how long more
load waits for more workers."""
GATHER_SECONDS: Final = 0.05
"""From an event to its pass: what happens together is looked at together."""
LONGEST_GATHER_SECONDS: Final = 1.0
"""With many pools, whose pods come one by one: a thousand that start are as many passes as there are events."""
GATHERING_POOLS: Final = 1000
"""With so many it is the longest."""
ON_THE_WAY_SECONDS: Final = 1.0
"""The same where a pod was made or placed and nothing is wrong with it: nobody can use it yet, so the pass can wait for
what follows. Two of three events of a pool that starts are of that kind."""
LONGEST_ON_THE_WAY_SECONDS: Final = 5.0
FIGURES_SECONDS: Final = 5.0
"""A status that differs in what changes all the time alone is written no more often than this."""
FIGURES_PER_SECOND: Final = 40
"""Such writes of all pools together."""
STEP_SECONDS: Final = 1.0
"""A step to a pool's next state is written so long after it, with all that came since."""
START_SECONDS: Final = 5.0
"""The same for a pool that does not serve, whose state nobody can use yet."""
STEPS_PER_SECOND: Final = 100
"""Such writes of all pools together, until the longest time is reached."""
LONGEST_STEP_SECONDS: Final = 10.0


FIRST_SCORE_SECONDS: Final = 0.1
"""While a replica answers and the first request at a pool at zero has no score yet: every step is a short one."""
AFTER_CHANGE_SECONDS: Final = 0.5
"""Until the next pass after one that wrote something: a step of a plan is often followed by another."""
SOONER_SECONDS: Final = 1.5
"""A pool that was busy a moment ago is looked at so much sooner than one that has been quiet for long."""
_REPORTED_BY_WATCHES: Final = (ConditionReason.SCALING, ConditionReason.UNSCHEDULABLE)
"""Reasons of Progressing whose end a pod tells by itself; a pool may have them for days."""


class Outcome(enum.Enum):
    """What a pass came to, as far as the next one depends on it."""

    QUIET = enum.auto()
    BUSY = enum.auto()
    """There is load, or something is under way that no event will tell the end of."""
    CHANGED = enum.auto()
    """Something was written."""
    ANSWER = enum.auto()
    """The first request at a pool at zero waits for its score, and nothing else."""

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
        if status.first_score is not None and status.first_score.waits_for == "Answer":
            return cls.ANSWER
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


FIXED: Final = Rest(shortest=3.0, longest=60.0, per_second=16)
"""Of a fixed size. What a look would find is a list that somebody changed by hand, and that load has come: watches tell
of all else. With a thousand pools these looks are most of what an operator does."""
SCALING: Final = Rest(shortest=1.0, longest=5.0, per_second=100)
"""Of a size that follows the load."""
AT_ZERO: Final = Rest(shortest=0.25, longest=5.0, per_second=100)
"""Of such a size that is 0: the first request at one of 25 pools is seen within a quarter of a second, at one of a
thousand within five."""
PARKED: Final = Rest(shortest=0.1, longest=5.0, per_second=100)
"""Of one that has parked replicas besides: the first request waits for nothing but being seen."""


@dataclass(frozen=True, kw_only=True)
class Paces:
    """How long what is no news of a status waits."""

    figures_seconds: float = FIGURES_SECONDS
    """Between two writes of figures alone."""
    step_seconds: float = STEP_SECONDS
    """From a step to its write."""
    start_seconds: float = START_SECONDS
    """The same while the pool does not serve."""

    @classmethod
    def of(cls, pools: int) -> Self:
        """Those of an operator with so many pools."""
        spread = min(LONGEST_STEP_SECONDS, pools / STEPS_PER_SECOND)
        return cls(
            figures_seconds=max(FIGURES_SECONDS, pools / FIGURES_PER_SECOND),
            step_seconds=max(STEP_SECONDS, spread),
            start_seconds=max(START_SECONDS, spread),
        )


OF_FEW_POOLS: Final = Paces()


def seconds_to_gather(pools: int) -> float:
    """Seconds from an event to the pass that looks at it."""
    return _gather(GATHER_SECONDS, LONGEST_GATHER_SECONDS, pools)


def seconds_to_gather_on_the_way(pools: int) -> float:
    """The same from an event that tells of nothing but a pod on its way."""
    return _gather(ON_THE_WAY_SECONDS, LONGEST_ON_THE_WAY_SECONDS, pools)


def _gather(shortest: float, longest: float, pools: int) -> float:
    return min(longest, max(shortest, longest * pools / GATHERING_POOLS))


_PAUSES: Final = {
    Outcome.ANSWER: FIRST_SCORE_SECONDS,
    Outcome.BUSY: BUSY_SECONDS,
}


def rest_of(pool: RewardPool) -> Rest:
    """How often a pool is looked at that is quiet."""
    scaling = pool.status.scaling
    if pool.spec.autoscaling is None:
        return FIXED
    if scaling is None or scaling.desired or pool.spec.suspend:
        return SCALING
    return PARKED if pool.spec.autoscaling.parked else AT_ZERO


def seconds_until_next(outcome: Outcome, *, quiet_for: float, rest: Rest, pools: int) -> float:
    """Seconds until the next look."""
    if outcome is Outcome.CHANGED:
        # With many pools what was written has events, and those are gathered: a pass before them finds nothing.
        return max(AFTER_CHANGE_SECONDS, seconds_to_gather(pools))
    if outcome is not Outcome.QUIET:
        return _PAUSES[outcome]
    longest = min(rest.longest, max(rest.shortest, pools / rest.per_second))
    # Half as long again as it has been quiet: grows by itself, without a count of passes. A thousand pools that are
    # made at once are all quiet between the events that they wait for, so with many it is nearly the longest at once.
    return min(longest, max(BUSY_SECONDS, quiet_for / 2, longest - SOONER_SECONDS))
