"""A stand-in for a fleet under an autoscaler: requests spread evenly, replicas ready after a fixed time, no queueing.

The load is what it is told to be, whatever the replicas do: what step responses of formulas are computed with.
"""

from collections.abc import Callable
from itertools import count

from rewardpool_simulator.policy import Policy, View


def a_view(*, now: float = 0.0, requests: int = 0, desired: int = 1, ready: int | None = None) -> View:
    """A fleet that is what was wanted, unless `ready` says less."""
    ready = desired if ready is None else ready
    in_flight = requests if ready else 0
    return View(
        now=now,
        in_flight=in_flight,
        waiting=requests - in_flight,
        desired=desired,
        ready=ready,
        starting=desired - ready,
    )


def changes(
    policy: Policy,
    load: Callable[[float], int],
    *,
    since: float = 0.0,
    until: float,
    start: int = 1,
    ready_after: float = 0.0,
) -> list[tuple[float, int]]:
    """Call the policy as often as it asks for; when the wanted size changed, and to what.

    Args:
        policy: made for this call.
        load: requests there are at a time, in seconds.
        since: time of the first decision. Replicas of the beginning are ready by then.
        until: time after the last decision.
        start: replicas at the beginning.
        ready_after: seconds a replica needs.
    """
    made, seen = [since - ready_after] * start, []
    for call in count():
        now = since + call * policy.period_seconds
        if now >= until:
            return seen
        ready = sum(now - at >= ready_after for at in made)
        desired = policy.decide(a_view(now=now, requests=load(now), desired=len(made), ready=ready))
        if desired != len(made):
            seen.append((now, desired))
        made = [*made[:desired], *[now] * (desired - len(made))]
    raise AssertionError("count() ended")
