"""A step: eight times the load from one moment to the next, and how soon an autoscaler asks for what that takes.

No fleet: requests stay as many as they are, whatever serves them, as when a queue is always full. What is counted is
when the autoscaler asks, not when replicas are there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rewardpool_control.autoscaler.signals import Announcement
from rewardpool_simulator.fleet import SimulatedReplica
from rewardpool_simulator.policy import View
from rewardpool_simulator.run import PolicyFactory

TARGET: Final = 10
"""Requests per replica that the policies of a step are set up for."""
FACTOR: Final = 8
MAX_REPLICAS: Final = 64
WARM_SECONDS: Final = 900.0
"""Of one replica's load before the step, for those who average."""
LIMIT_SECONDS: Final = 1800.0
"""After the step."""


@dataclass(frozen=True, kw_only=True)
class StepResponse:
    """How an autoscaler answered."""

    seconds: float | None
    """Until it asked for as many replicas as the load takes, or more; None if it never did."""
    peak: int
    """Most that it asked for."""


@dataclass(frozen=True, kw_only=True)
class NothingElse:
    """What our own policies see beside the load: nothing."""

    ready: Sequence[SimulatedReplica] = field(default=())
    lacks_capacity: bool = False
    metrics_missing: bool = False

    def announcements(self) -> tuple[Announcement, ...]:
        """Nobody says anything."""
        return ()


def step_response(
    make: PolicyFactory,
    *,
    target_per_replica: int = TARGET,
    factor: int = FACTOR,
    ready_seconds: float = 0.0,
    late_seconds: float = 0.0,
) -> StepResponse:
    """How a policy answers a step from one replica's load to `factor` times that.

    Args:
        make: of the policy, which starts with one replica.
        target_per_replica: requests of one replica's load.
        factor: of the step, and replicas that it takes.
        ready_seconds: from a replica's making to its taking requests.
        late_seconds: from the step to the next decision; at most the policy's period.
    """
    policy = make(NothingElse())
    line = _Line(ready_seconds)
    now, step = 0.0, math.ceil(WARM_SECONDS / policy.period_seconds) * policy.period_seconds - late_seconds
    peak, seconds = 0, None
    while now <= step + LIMIT_SECONDS:
        requests = target_per_replica * (factor if now >= step else 1)
        line.scale(policy.decide(line.view(now, requests)), now)
        if now >= step:
            peak = max(peak, line.desired)
            if seconds is None and line.desired >= factor:
                seconds = now - step
        now += policy.period_seconds
    return StepResponse(seconds=seconds, peak=peak)


class _Line:
    """Replicas by the time at which they are ready."""

    def __init__(self, ready_seconds: float) -> None:
        self._ready_seconds = ready_seconds
        self._ready_at = [0.0]

    @property
    def desired(self) -> int:
        return len(self._ready_at)

    def scale(self, wanted: int, now: float) -> None:
        more = wanted - self.desired
        self._ready_at = [*self._ready_at, *[now + self._ready_seconds] * more][:wanted]

    def view(self, now: float, requests: int) -> View:
        ready = sum(at <= now for at in self._ready_at)
        in_flight = requests if ready else 0
        return View(
            now=now,
            in_flight=in_flight,
            waiting=requests - in_flight,
            desired=self.desired,
            ready=ready,
            starting=self.desired - ready,
        )
