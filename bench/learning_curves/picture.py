"""The curves of all schedules, beside each other."""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from learning_curves.verdict import Curve

COLOURS: Final = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2")


def draw(curves: Mapping[str, Mapping[int, Curve]], path: Path) -> None:
    """Write a PNG: for each schedule the mean over its seeds, and from the least to the most of them."""
    mpl.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots()
    for colour, (name, by_seed) in zip(COLOURS, curves.items(), strict=False):
        by_step = list(zip(*by_seed.values(), strict=True))
        steps = range(1, len(by_step) + 1)
        axes.plot(steps, [statistics.fmean(at) for at in by_step], color=colour, linewidth=2, label=name)
        axes.fill_between(
            steps, [min(at) for at in by_step], [max(at) for at in by_step], color=colour, alpha=0.12, linewidth=0
        )
    seeds = max(len(by_seed) for by_seed in curves.values())
    axes.set_title(f"Share of vowels in the policy's responses; mean, least and most of {seeds} seeds", loc="left")
    axes.set_xlabel("step")
    axes.set_ylabel("reward")
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=120)
