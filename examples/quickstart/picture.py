"""The demo's picture: what the policy got, and where the seconds of each step went."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PARTS = (
    ("rollout_seconds", "rollout", "#4c78a8"),
    ("reward_exposed_seconds", "waiting for scores (exposed)", "#e45756"),
    ("update_seconds", "update", "#72b7b2"),
)
REWARD_COLOUR, SPREAD_ALPHA = "#54a24b", 0.2


def draw(records: Sequence[Mapping[str, Any]], kills: Sequence[int], path: Path) -> None:
    """Write a PNG.

    Args:
        records: The lines of metrics.jsonl, one per step.
        kills: For each killed worker, the last step that was complete before it.
        path: Where to write it.
    """
    mpl.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(10, 7), layout="constrained")
    reward, seconds = figure.subplots(2, 1, sharex=True)
    draw_reward(reward, [record for record in records if record["reward_mean"] is not None])
    draw_seconds(seconds, records)
    for axes in (reward, seconds):
        for number, step in enumerate(kills):
            axes.axvline(
                step + 0.5, color="black", linestyle="--", linewidth=1, label="kill -9" if number == 0 else None
            )
        axes.margins(y=0.2)  # room for the legend, which would cover the bars
        axes.legend(loc="upper left", ncols=4, framealpha=1, edgecolor="none")
    seconds.set_xlabel("step")
    figure.savefig(path, dpi=130)


def draw_reward(axes: Axes, records: Sequence[Mapping[str, Any]]) -> None:
    """Draw the mean reward of each step, and one standard deviation around it."""
    steps = [record["step"] for record in records]
    means = [record["reward_mean"] for record in records]
    spreads = [record["reward_std"] for record in records]
    axes.plot(steps, means, color=REWARD_COLOUR, linewidth=2, label="mean of the step")
    low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
    high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
    axes.fill_between(
        steps, low, high, color=REWARD_COLOUR, alpha=SPREAD_ALPHA, linewidth=0, label="standard deviation"
    )
    axes.set_ylabel("reward")
    axes.set_title("Share of vowels in the policy's responses, as scored by the pool", loc="left")


def draw_seconds(axes: Axes, records: Sequence[Mapping[str, Any]]) -> None:
    """Draw the parts of each step on top of each other."""
    steps = [record["step"] for record in records]
    bottom = [0.0] * len(steps)
    for name, label, colour in PARTS:
        heights = [record[name] for record in records]
        axes.bar(steps, heights, bottom=bottom, color=colour, width=0.9, label=label)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_ylabel("seconds")
    axes.set_title("Where each step's time went", loc="left")
