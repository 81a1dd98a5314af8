"""What the figures shall be, and whether they are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.manifests import OURS, STEP
from rewardpool_simulator.policies import ALWAYS_ON

STEP_SECONDS: Final = 2.0
STALL_SHARE: Final = 0.05
"""Of the reactive policy's that stalls least."""
COST_SHARE: Final = 0.6
"""Of the smallest fleet of fixed size that stalls no more."""
TOLD: Final = "demand"
"""The policy that is told what comes; all others react."""

Figures = Mapping[str, Mapping[str, float]]
"""Of one trace, by policy."""


@dataclass(frozen=True, kw_only=True)
class Aim:
    """One figure beside what it shall be."""

    what: str
    measured: str
    aim: str
    met: bool


def aims(result: Mapping[str, Any]) -> Iterator[Aim]:
    """All aims of a result that have figures."""
    if (seconds := result["real_step_response_seconds"]) is not None:
        most = max(step[OURS]["most_wanted"] for step in result["real_steps"])
        aim, met = f"<= {STEP_SECONDS:g} s", seconds <= STEP_SECONDS
        yield Aim(what="step on the node", measured=f"{seconds:.1f} s", aim=aim, met=met)
        yield Aim(what="most asked for", measured=str(most), aim=f"{STEP}", met=most == STEP)
    for trace, figures in (result["traces"] or {}).items():
        yield from of_trace(trace, figures)


def of_trace(trace: str, figures: Figures) -> Iterator[Aim]:
    """Those of one trace: little stall, little cost, and nobody else better at both."""
    told = figures[TOLD]
    fixed = next(one for name, one in figures.items() if name.startswith(ALWAYS_ON))
    others = {name: one for name, one in figures.items() if name != TOLD and not name.startswith(ALWAYS_ON)}
    least = min(one["stall_seconds"] for one in others.values())
    better = [name for name, one in others.items() if is_better(one, told)]
    yield Aim(
        what=f"{trace}: stall, beside the least of those that react",
        measured=f"{told['stall_seconds']:.0f} s beside {least:.0f} s",
        aim=f"<= {STALL_SHARE:.0%}",
        met=told["stall_seconds"] <= STALL_SHARE * least,
    )
    cost = told["gpu_seconds"] / fixed["gpu_seconds"]
    yield Aim(
        what=f"{trace}: cost, beside a fleet of fixed size that stalls as little",
        measured=f"{cost:.0%}",
        aim=f"<= {COST_SHARE:.0%}",
        met=cost <= COST_SHARE,
    )
    yield Aim(
        what=f"{trace}: who stalls less and costs less",
        measured=", ".join(better) or "nobody",
        aim="nobody",
        met=not better,
    )


def is_better(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether one stalls less and costs less than the other."""
    return one["stall_seconds"] < other["stall_seconds"] and one["gpu_seconds"] < other["gpu_seconds"]
