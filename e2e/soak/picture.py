"""The picture of a soak: what was answered in each second, and below it every fault from its beginning to its end."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from soak.report import Happened

FAULT, CHANGE = "#c0392b", "#2471a3"
SHORTEST_SECONDS = 1.0
"""What is over at once is drawn so long, to be seen."""


def draw(
    path: Path,
    *,
    began: float,
    seconds: float,
    traffic: Sequence[float],
    training: Sequence[float],
    happened: Sequence[Happened],
    title: str,
) -> None:
    """Write a PNG; `traffic` and `training` are the times of their answers, in seconds since 1970."""
    kinds = [*sorted({one.kind for one in happened if not one.is_change}, reverse=True)]
    kinds = [*sorted({one.kind for one in happened if one.is_change}, reverse=True), *kinds]
    figure, (above, below) = plt.subplots(
        2,
        1,
        sharex=True,
        figsize=(14, 4.5 + 0.22 * len(kinds)),
        height_ratios=[3.5, max(1.0, 0.24 * len(kinds))],
        layout="constrained",
    )
    edges = [float(second) for second in range(int(seconds) + 2)]
    answered = [[at - began for at in times] for times in (traffic, training)]
    labels = ("steady traffic", "training job")
    above.hist(answered, bins=edges, stacked=True, color=("#7f8c8d", "#27ae60"), label=labels)
    above.set_ylabel("samples answered per second")
    above.set_title(title, loc="left")
    above.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
    for one in happened:
        start, length = one.began - began, max(SHORTEST_SECONDS, one.ended - one.began)
        colour = CHANGE if one.is_change else FAULT
        below.barh(kinds.index(one.kind), length, left=start, height=0.7, color=colour)
        above.axvspan(start, start + length, color=colour, alpha=0.08, linewidth=0)
    below.set_yticks(range(len(kinds)), kinds, fontsize=8)
    below.set_xlabel("seconds (red: faults, blue: what a user changes)")
    below.set_xlim(0.0, seconds)
    below.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
