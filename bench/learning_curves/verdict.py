"""From rewards of jobs to whether two schedules learn alike. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

BASELINE: Final = "sync"
LAST_STEPS: Final = 10
"""Of a job, over which its final reward is the mean."""

Curve = Sequence[float]
"""The mean reward of each step."""


def final_reward(curve: Curve) -> float:
    """Where a job ended."""
    return statistics.fmean(curve[-LAST_STEPS:])


def verdicts(curves: Mapping[str, Mapping[int, Curve]]) -> dict[str, Any]:
    """Compare every schedule with the baseline, over seeds.

    A schedule is `within_spread` when its mean final reward is no further from the baseline's than the seeds of either
    are spread, from their least to their most.
    """
    finals = {name: [final_reward(curve) for curve in by_seed.values()] for name, by_seed in curves.items()}
    baseline = finals.get(BASELINE)
    return {name: _beside(final, baseline) for name, final in finals.items()}


def _beside(final: Sequence[float], baseline: Sequence[float] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "final_reward": round(statistics.fmean(final), 4),
        "least": round(min(final), 4),
        "most": round(max(final), 4),
    }
    if baseline is None:
        return {**found, "vs_sync": None, "within_spread": None}
    apart = statistics.fmean(final) - statistics.fmean(baseline)
    spread = max(max(final) - min(final), max(baseline) - min(baseline))
    return {**found, "vs_sync": round(apart, 4), "within_spread": abs(apart) <= spread}
