"""Stall against cost as a picture: a panel per trace, a point per policy; the nearer to the lower left, the better."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autoscaler.peers import PEERS
from rewardpool_simulator.compare import PolicyComparison, PolicyOutcome

COLUMNS: Final = 3
OURS: Final = "#0b6e4f"
OTHERS: Final = "#b3541e"
FIXED: Final = "#555555"
LETTER_POINTS: Final = 5.5
LINE_POINTS: Final = 10.0
GAP_POINTS: Final = 4.0
"""Between a point and its name."""
POINTS_PER_INCH: Final = 72
NEAR_ZERO_SECONDS: Final = 10.0
"""Below this the axis of seconds is linear, so that no stall at all has a place on it."""


def draw(comparisons: Sequence[PolicyComparison], path: Path) -> None:
    """Write the picture.

    Args:
        comparisons: at least one.
        path: of the file; the ending says which format.
    """
    mpl.rcParams["font.size"] = 9
    columns = min(COLUMNS, len(comparisons))
    rows = -(-len(comparisons) // columns)
    figure = Figure(figsize=(5.2 * columns, 4.2 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, comparison in zip(panels, comparisons, strict=False):
        _scale(axes, comparison)
    for axes in panels[len(comparisons) :]:
        axes.set_visible(False)
    figure.draw_without_rendering()  # names are placed by where the points have come to lie
    for axes, comparison in zip(panels, comparisons, strict=False):
        _draw_points(axes, comparison)
    figure.savefig(path, dpi=130)


def _scale(axes: Axes, comparison: PolicyComparison) -> None:
    outcomes = list(_points(comparison).values())
    axes.set_yscale("symlog", linthresh=NEAR_ZERO_SECONDS, linscale=0.5)
    axes.set_title(comparison.trace, loc="left")
    axes.set_xlabel("GPU-hours")
    axes.set_ylabel("stall, seconds")
    axes.set_xlim(left=0, right=1.3 * max(outcome.run.gpu_seconds for outcome in outcomes) / 3600)
    axes.set_ylim(bottom=-1, top=12 * max(10.0, *(outcome.stall_seconds for outcome in outcomes)))
    axes.grid(alpha=0.25)


def _points(comparison: PolicyComparison) -> Mapping[str, PolicyOutcome]:
    return {**comparison.outcomes, comparison.always_on.run.policy: comparison.always_on}


def _draw_points(axes: Axes, comparison: PolicyComparison) -> None:
    labels = _Labels(axes)
    for name, outcome in sorted(_points(comparison).items(), key=lambda point: point[1].run.gpu_seconds):
        colour = FIXED if outcome is comparison.always_on else OTHERS if name in PEERS else OURS
        place = (outcome.run.gpu_seconds / 3600, outcome.stall_seconds)
        axes.scatter(*place, color=colour, s=28, zorder=3)
        labels.put(name, place, colour)


class _Labels:
    """Names beside their points, each a line higher than those it would otherwise cover."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._taken: list[tuple[float, float, float]] = []
        """From where to where, and at what height, in points."""

    def put(self, name: str, place: tuple[float, float], colour: str) -> None:
        x, y = self._axes.transData.transform(place) * POINTS_PER_INCH / self._axes.figure.get_dpi()
        left, right, up = x, x + LETTER_POINTS * len(name), GAP_POINTS
        while any(left < end and begin < right and abs(y + up - at) < LINE_POINTS for begin, end, at in self._taken):
            up += 1
        self._taken.append((left, right, y + up))
        line = {"arrowstyle": "-", "color": colour, "alpha": 0.4} if up > GAP_POINTS else None
        self._axes.annotate(
            name, place, xytext=(GAP_POINTS, up), textcoords="offset points", color=colour, arrowprops=line
        )
