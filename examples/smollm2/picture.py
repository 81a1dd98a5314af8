"""The example's picture: what each of the two pools said of the answers, step by step."""

import json
import statistics
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

PARTS = (
    ("right", "share of right sums (function pool)", "#4c78a8"),
    ("wording", "share that the judge calls short and clear", "#f58518"),
)
WINDOW = 8
"""Steps of the moving mean."""


def draw(metrics: Path, path: Path) -> None:
    """Write a PNG of the lines of a metrics.jsonl."""
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    mpl.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    for part, label, colour in PARTS:
        points = [(record["step"], record["components"][part]) for record in records]
        points = [(step, value) for step, value in points if value is not None]
        axes.plot(*zip(*points, strict=True), ".", color=colour, alpha=0.35)
        means = [
            (step, statistics.fmean(value for _, value in points[max(0, at - WINDOW + 1) : at + 1]))
            for at, (step, _) in enumerate(points)
        ]
        axes.plot(*zip(*means, strict=True), color=colour, linewidth=2, label=label)
    axes.set_title(f"SmolLM2-135M-Instruct learns to add; a step's mean, and that of {WINDOW} steps", loc="left")
    axes.set_xlabel("step")
    axes.set_ylim(0, 1)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=120)
