"""The pause between attempts at what failed."""

import random


def pause_seconds(failed: int, *, shortest: float, longest: float) -> float:
    """Return the pause after so many failures in a row: twice as long after each, and spread; 0 after none."""
    pause = min(longest, shortest * 2.0 ** min(failed - 1, 16)) if failed else 0.0
    return pause * random.uniform(0.7, 1.0)  # noqa: S311 - spreads attempts, hides nothing
