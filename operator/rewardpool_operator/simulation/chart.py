"""Stall against cost as a picture: a panel per trace, a point per policy; the nearer to the lower left, the better."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewardpool_operator.simulation.compare import Comparison
from rewardpool_operator.simulation.peers import PEERS

COLUMNS: Final = 3
OURS: Final = "#0b6e4f"
OTHERS: Final = "#b3541e"
FIXED: Final = "#555555"
NEAR_ZERO_SECONDS: Final = 10.0
"""Below this the axis of seconds is linear, so that no stall at all has a place on it."""


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """Write the picture.

    Args:
        comparisons: at least one.
        path: of the file; the ending says which format.
    """
    mpl.rcParams["font.size"] = 9
    columns = min(COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    figure = Figure(figsize=(5.2 * columns, 4.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes, comparison in zip(panels, comparisons, strict=False):
        _draw_one(axes, comparison)
    for axes in list(panels)[len(comparisons) :]:
        axes.set_visible(False)
    figure.savefig(path, dpi=130)


def _draw_one(axes: Axes, comparison: Comparison) -> None:
    axes.set_yscale("symlog", linthresh=NEAR_ZERO_SECONDS, linscale=0.5)
    axes.set_title(comparison.trace, loc="left")
    axes.set_xlabel("GPU-hours")
    axes.set_ylabel("stall, seconds")
    fixed = comparison.always_on
    points = [(name, outcome) for name, outcome in comparison.outcomes.items()] + [(fixed.run.policy, fixed)]
    for name, outcome in points:
        colour = FIXED if outcome is fixed else OTHERS if name in PEERS else OURS
        hours = outcome.run.gpu_seconds / 3600
        axes.scatter(hours, outcome.stall_seconds, color=colour, s=28, zorder=3)
        axes.annotate(name, (hours, outcome.stall_seconds), xytext=(4, 4), textcoords="offset points", color=colour)
    axes.set_xlim(left=0, right=1.25 * max(outcome.run.gpu_seconds for _, outcome in points) / 3600)
    axes.set_ylim(bottom=-1, top=3 * max(10.0, *(outcome.stall_seconds for _, outcome in points)))
    axes.grid(alpha=0.25)
