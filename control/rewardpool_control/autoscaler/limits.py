"""From the wanted number to the allowed one: tolerance, window, steps, bounds.

The tolerance keeps the size while the proposal differs little. The window lets the pool shrink only to the largest of
the last while, as the Kubernetes HPA does it. Steps bound what is added or taken away within a period. Bounds come last
and always hold.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from rewardpool_api.autoscaling import AutoscalingSpec, StepSpec
from rewardpool_api.status import DesiredAt, ScalingDecision
from rewardpool_control.autoscaler.proposal import Proposal

MAX_WINDOW: Final = 64


def clamp(replicas: int, scaling: AutoscalingSpec) -> int:
    """Return the number within the bounds."""
    return max(scaling.min_replicas, min(scaling.max_replicas, replicas))


def within_tolerance(proposal: Proposal, *, current: int, percent: int) -> bool:
    """Return whether the wanted size is too close to the current one to be worth a change; never to or from zero."""
    if current == 0 or proposal.exact <= 0:
        return False
    return abs(proposal.exact - current) <= current * percent / 100 + 1e-9


def window(previous: Sequence[DesiredAt], wanted: int, *, now: datetime, seconds: float) -> list[DesiredAt]:
    """The larger proposals that are still fresh, then the present one."""
    if previous and previous[-1].replicas == wanted:
        ended, present = previous[:-1], previous[-1]
    else:
        # What was wanted until now is dated by its end.
        ended = [*previous[:-1], *(DesiredAt(time=now, replicas=entry.replicas) for entry in previous[-1:])]
        present = DesiredAt(time=now, replicas=wanted)
    oldest = now - timedelta(seconds=seconds)
    fresh = [entry for entry in ended if entry.replicas > wanted and entry.time > oldest]
    falling: list[DesiredAt] = []
    # A proposal not larger than a later one can never be the maximum.
    for entry in reversed(fresh):
        if not falling or entry.replicas > falling[-1].replicas:
            falling.append(entry)
    # Beyond what the status holds, the smaller ones between the largest and the present one go.
    return [*list(reversed(falling))[: MAX_WINDOW - 1], present]


def stepped(
    wanted: int, *, current: int, history: Sequence[ScalingDecision], scaling: AutoscalingSpec, now: datetime
) -> int:
    """Return the size that the steps allow within the period, by the sizes that there were in it."""
    step = scaling.scale_up.step if wanted > current else scaling.scale_down.step
    if step is None or wanted == current:
        return wanted
    sizes = _sizes_within(step, current, history, now)
    if wanted > current:
        base = min(sizes)
        return max(current, min(wanted, base + _size_of(step, base)))
    base = max(sizes)
    return min(current, max(wanted, base - _size_of(step, base)))


def _size_of(step: StepSpec, base: int) -> int:
    by_share = math.ceil(base * step.percent / 100) if step.percent is not None else 0
    # At least one, or a pool at zero would stay there.
    return max(1, step.replicas or 0, by_share)


def _sizes_within(step: StepSpec, current: int, history: Sequence[ScalingDecision], now: datetime) -> list[int]:
    begun = now - timedelta(seconds=step.period_seconds)
    sizes = [current]
    for change in reversed(history):
        sizes.append(change.replicas)
        if change.time <= begun:
            break
    return sizes
