"""A picture of two scores of the same records: one over the other, and how their order agrees prompt by prompt."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rewardpool._files.agreement import ScoreAgreement, kendall_of
from rewardpool_cli.errors import RefusedError

Groups = Sequence[Sequence[tuple[float, float]]]
COLOUR: Final = "#4c78a8"
LARGEST: Final = 1e300  # matplotlib can still divide such an axis
MOST_POINTS: Final = 5_000  # more are drawn as fields, darker where there are more of them


def check(path: Path) -> None:
    """Raise RefusedError where no picture can be written there."""
    if path.suffix != ".png":
        raise RefusedError(f"--plot {path} must end in .png")
    if not path.parent.is_dir():
        raise RefusedError(f"--plot: there is no folder {path.parent}; make it, or name a file in another one")
    if find_spec("matplotlib") is None:
        raise RefusedError("--plot needs matplotlib: pip install matplotlib")


def draw(groups: Groups, agreement: ScoreAgreement, path: Path) -> None:
    """Write a PNG of the scores before and now of the records of each prompt; there is one record at least.

    Raises:
        RefusedError: Scores are larger than can be drawn.
    """
    if (largest := max(abs(score) for group in groups for pair in group for score in pair)) > LARGEST:
        raise RefusedError(f"--plot: scores of {largest:.2g} are too large to draw; leave it out")
    import matplotlib as mpl
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    before = [one for group in groups for one, _ in group]
    now = [one for group in groups for _, one in group]
    taus = [tau for group in groups if (tau := kendall_of(group)) is not None]
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 5.2), layout="constrained")
        scores, order = figure.subplots(1, 2, width_ratios=(3, 2))
        if len(before) > MOST_POINTS:
            shades = LinearSegmentedColormap.from_list("fields", ("#b3cde3", "#08306b"))
            fields = scores.hexbin(before, now, gridsize=60, bins="log", mincnt=1, cmap=shades)
            figure.colorbar(fields, ax=scores, label="records", pad=0.01)
        else:
            scores.scatter(before, now, s=10, color=COLOUR, alpha=0.5, linewidths=0)
        scores.axline((before[0], before[0]), slope=1, color="black", linewidth=1, linestyle="--", label="equal")
        scores.set_xlabel("score before")
        scores.set_ylabel("score now")
        scores.set_title(f"{agreement.both:,} records", loc="left")
        scores.legend(loc="upper left", frameon=False)
        order.hist(taus, bins=[step / 10 - 1 for step in range(21)], color=COLOUR, rwidth=0.95)
        order.set_xlim(-1, 1)
        order.set_xticks((-1, -0.5, 0, 0.5, 1))
        order.set_xlabel("Kendall's tau of a prompt's responses")
        order.set_ylabel("prompts")
        said = "" if agreement.kendall is None else f", tau {agreement.kendall:.3f}"
        order.set_title(f"{agreement.groups:,} prompts{said}", loc="left")
        figure.savefig(path, dpi=130)
