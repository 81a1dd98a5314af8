"""Exactness of a reward model's scores, so that noise is never scaled up to a difference. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

# The least number that is added to a group's standard deviation.
EPSILON = 1e-4

ScoreDtype = Literal["float32", "float16", "bfloat16"]
# Steps from 1 to the next number.
_STEP: dict[ScoreDtype, float] = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def coarsest(dtypes: Iterable[str | None]) -> ScoreDtype:
    """Return the one of these with the largest steps; those that are unknown or the engine's choice do not count."""
    given = set(dtypes)
    return max((dtype for dtype in _STEP if dtype in given), key=_STEP.__getitem__, default="float32")


def float_step(scores: Sequence[float], dtype: ScoreDtype) -> float:
    """Return a step of the reward model's numbers at the size of the largest score, and at that of 1 where all are
    smaller: a score near 0 is what is left of larger summands.

    Scores of equal responses differ by a step or two, depending on which samples shared their batch at the server.
    """
    return _STEP[dtype] * max(1.0, *map(abs, scores))


def differ(scores: Sequence[float], dtype: ScoreDtype) -> bool:
    """Return whether scores are further apart than two steps of the reward model's numbers: one up and one down."""
    # Halves, because the difference of two large numbers need not be a float.
    return bool(scores) and max(scores) / 2 - min(scores) / 2 > float_step(scores, dtype)


def epsilon(scores: Sequence[float], dtype: ScoreDtype) -> float:
    """Return the number that is added to a group's standard deviation: `EPSILON`, or a step where that is larger.

    In float32 a step is some 1e-7, far below. A logit of 20 in bfloat16 is good to 0.16.
    """
    return max(EPSILON, float_step(scores, dtype))
