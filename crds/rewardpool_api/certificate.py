"""The certificate of a worker: whether its numbers depend on how they are asked for.

What may differ, and what a worker's ready report says of it, for both ends.

This file needs nothing but the standard library, of Python 3.10: it is mounted into the engines' images as it is.
"""

from typing import Final

ALLOWED: Final = {"float32": 1e-3, "float16": 2.0**-8, "bfloat16": 2.0**-5}
"""By dtype: the largest difference between numbers up to 1; of larger ones, this share. Twice to four times the
rounding of one number in half precision, since the sums of a batch come out differently at each size."""
LOOSEST: Final = max(ALLOWED.values())
"""For `auto`, whose number format is known to the engine alone."""

NUMBERS_VARY: Final = "numbers_vary"
"""`code` in the ready report of a worker that is not ready because its numbers differ by more."""
MOST_WORDS: Final = 500
"""Characters of what a certificate says."""


def allowed(dtype: str, one: float, other: float) -> float:
    """Return by how much one model's numbers for the same sample may differ."""
    return ALLOWED.get(dtype, LOOSEST) * max(1.0, abs(one), abs(other))
