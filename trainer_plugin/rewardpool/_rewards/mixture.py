"""The arithmetic of a mixture: raw scores -> clip -> normalize -> weight -> one total. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rewardpool._rewards.score_noise import ScoreDtype, differ, epsilon

Deviation = Literal["population", "sample"]
Bounds = tuple[float, float]


def clipped(value: float, bounds: Bounds | None) -> float:
    return value if bounds is None else min(max(value, bounds[0]), bounds[1])


def normalized(
    values: Sequence[float], *, dtype: ScoreDtype = "float32", deviation: Deviation = "population"
) -> list[float]:
    """Return the distances of a group's scores from their mean, divided by standard deviation plus `epsilon`.

    This is GRPO's formula as TRL and verl compute it, and the only definition here: of `normalize: group`, and of a
    trainer's advantages. Scores that do not `differ` are all 0.0, as is a single one. The deviation of a `population`
    divides by n, that of a `sample` by n - 1.
    """
    if not differ(values, dtype):
        return [0.0] * len(values)
    # Brought to 0 to 1, so that no sum and no square overflows.
    half_low, half_span = min(values) / 2, max(values) / 2 - min(values) / 2
    scaled = [(value / 2 - half_low) / half_span for value in values]
    mean = statistics.fmean(scaled)
    spread = statistics.pstdev(scaled) if deviation == "population" else statistics.stdev(scaled)
    spread += epsilon(values, dtype) / 2 / half_span
    return [(value - mean) / spread for value in scaled]


@dataclass(frozen=True)
class Scaling:
    """Scaling of a score: less the mean, divided by the deviation. By default it changes nothing."""

    mean: float = 0.0
    std: float = 1.0

    def apply(self, value: float) -> float:
        """The scaled score. Equal scores become equal ones."""
        return (value - self.mean) / self.std


def combined(scores: Sequence[float], *, how: str) -> float:
    """Weighted scores as one total: their product for `product`, else their sum.

    The sum is exact before it is rounded, so that the order of the parts does not matter. Not finite where it is too
    large for a float.
    """
    try:
        return math.prod(sorted(scores)) if how == "product" else math.fsum(scores)
    except (OverflowError, ValueError):  # what fsum raises for sums, and for infinite terms, of which it can make none
        return math.inf
