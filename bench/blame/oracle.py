"""Advantages of a group, computed by another formula than the project's: exactly, and from pairs of scores alone.

r_i - mean(r)   is the mean over j of r_i - r_j
variance(r)     is the sum over all pairs i < j of (r_i - r_j)^2, divided by n^2 (population) or n (n - 1) (sample)
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

from rewardpool_train.advantages import AdvantageScale

EPSILON = Fraction(1, 10_000)
"""Is added to the deviation of scores that are computed in float32, as in TRL."""


def advantages(scores: Sequence[float], scale: AdvantageScale) -> list[float]:
    """Return the advantages of a group whose scores differ."""
    exact = [Fraction(score) for score in scores]
    n = len(exact)
    distances = [sum((one - other for other in exact), Fraction(0)) / n for one in exact]
    if scale == "none":
        return [float(distance) for distance in distances]
    squares = sum(((one - other) ** 2 for one, other in itertools.combinations(exact, 2)), Fraction(0))
    variance = squares / (n * n if scale == "group_std" else n * (n - 1))
    deviation = Fraction(math.isqrt(int(variance * 10**40))) / 10**20
    return [float(distance / (deviation + EPSILON)) for distance in distances]
