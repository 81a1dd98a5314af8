"""The arithmetic of a mixture: raw scores -> clip -> normalize -> weight -> one total. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Bounds = tuple[float, float]


def clipped(value: float, bounds: Bounds | None) -> float:
    """The value, brought between the bounds."""
    return value if bounds is None else min(max(value, bounds[0]), bounds[1])


def normalized(values: Sequence[float]) -> list[float]:
    """The values with mean 0 and standard deviation 1 (that of a population); all 0 where they are equal, or one."""
    if not values or min(values) == max(values):
        return [0.0] * len(values)
    # The result does not depend on the scale; on this one no square overflows.
    half_low, half_span = min(values) / 2, max(values) / 2 - min(values) / 2
    if half_span == 0.0:  # numbers so small that their halves are the same
        return [0.0] * len(values)
    scaled = [(value / 2 - half_low) / half_span for value in values]
    mean, deviation = statistics.fmean(scaled), statistics.pstdev(scaled)
    return [(value - mean) / deviation for value in scaled]


@dataclass(frozen=True)
class Scaling:
    """From a score to a scaled one: less the mean, divided by the deviation. By default it changes nothing."""

    mean: float = 0.0
    std: float = 1.0

    def of(self, value: float) -> float:
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
