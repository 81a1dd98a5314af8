"""A dashboard as a picture: every panel in its place, with the series that Prometheus gave for it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, MinuteLocator
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dashboards.panels import Dashboard, Panel, Query
from dashboards.prometheus import Series

COLUMN_INCHES: Final = 0.56
ROW_INCHES: Final = 0.36
LEFT, RIGHT, ABOVE, BELOW = 1.0, 0.5, 1.1, 1.9
"""Between a panel's room and its axes, in columns and rows; a legend lies below."""
NAMES: Final = 2.2
"""Further room on the left for the names of a state timeline, in columns."""
LEGEND: Final = 4
"""Lines that a legend names at most; the picture is no less true without the others' names."""
ON: Final = "#2f9e62"
OFF: Final = "#d8dce2"
UNITS: Final = {"s": "s", "reqps": "/s", "ops": "/s"}

Asked = Callable[[Query], Sequence[Series]]
"""The series of a query."""


@dataclass(frozen=True)
class Line:
    """A series with its name in the legend."""

    name: str
    times: Sequence[datetime]
    values: Sequence[float]


def draw(dashboard: Dashboard, asked: Asked, path: Path, *, start: float, end: float) -> None:
    """Write the picture of a dashboard between two times in seconds since 1970; `path` ends in the format's name."""
    mpl.rcParams["font.size"] = 7.5
    columns = max(panel.x + panel.width for panel in dashboard.panels)
    rows = max(panel.y + panel.height for panel in dashboard.panels) + 1
    figure = Figure(figsize=(columns * COLUMN_INCHES, rows * ROW_INCHES), facecolor="#f4f5f7")
    figure.text(0.4 / columns, 1 - 0.6 / rows, dashboard.title, fontsize=11, fontweight="bold", va="center")
    for panel in dashboard.panels:
        lines = [_line(query, series) for query in panel.queries for series in asked(query)]
        left = LEFT + (NAMES if panel.kind == "state-timeline" and lines else 0)
        width, height = panel.width - left - RIGHT, panel.height - ABOVE - BELOW
        place = ((panel.x + left) / columns, 1 - (panel.y + 1 + panel.height - BELOW) / rows)
        axes = figure.add_axes((*place, width / columns, height / rows))
        axes.set_title(panel.title, loc="left", fontsize=8.5, fontweight="bold")
        if not lines:
            _say_nothing(axes)
            continue
        _KINDS[panel.kind](axes, panel, lines)
        if panel.kind != "stat":
            axes.set_xlim(*(datetime.fromtimestamp(when, tz=UTC) for when in (start, end)))  # type: ignore[arg-type]
            axes.xaxis.set_major_locator(MinuteLocator())
            axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    figure.savefig(path, dpi=110)


def _line(query: Query, series: Series) -> Line:
    times = [datetime.fromtimestamp(when, tz=UTC) for when, _ in series.points]
    return Line(query.name_of(series.labels), times, [value for _, value in series.points])


def _timeseries(axes: Axes, panel: Panel, lines: Sequence[Line]) -> None:
    for line in lines:
        axes.plot(line.times, line.values, linewidth=1.2, label=line.name)  # type: ignore[arg-type]
    axes.grid(alpha=0.25)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    unit = UNITS.get(panel.unit, "")
    if panel.unit == "bytes":
        axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1e6:.0f} MB")
    elif unit:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} {unit}")
    named = axes.get_legend_handles_labels()[0][:LEGEND]
    below = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.12), "ncols": 2}
    axes.legend(handles=named, fontsize=6.5, frameon=False, columnspacing=1, handlelength=1.2, **below)


def _state_timeline(axes: Axes, _: Panel, lines: Sequence[Line]) -> None:
    for row, line in enumerate(reversed(lines)):
        # A state holds until the next look at it.
        step = line.times[1] - line.times[0] if len(line.times) > 1 else timedelta(seconds=1)
        for begin, value in zip(line.times, line.values, strict=True):
            axes.barh(row, step, left=begin, height=0.7, color=ON if value else OFF)  # type: ignore[arg-type]
    axes.set_yticks(range(len(lines)), [line.name for line in reversed(lines)], fontsize=7)


def _stat(axes: Axes, _: Panel, lines: Sequence[Line]) -> None:
    axes.set_axis_off()
    last = [value for line in lines for value in line.values[-1:] if not math.isnan(value)]
    axes.text(0.5, 0.45, f"{sum(last):g}" if last else "no data", fontsize=20, ha="center", va="center")


def _say_nothing(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, "nothing to show in this run", ha="center", va="center", color="#707784")


_KINDS: Mapping[str, Callable[[Axes, Panel, Sequence[Line]], None]] = {
    "timeseries": _timeseries,
    "state-timeline": _state_timeline,
    "stat": _stat,
}
