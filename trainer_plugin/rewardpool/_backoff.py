"""Pauses between attempts: full jitter under a doubling bound, so that what failed together does not return together.

AWS Architecture Blog, "Exponential Backoff And Jitter" (2015), has why the whole of the bound is random.
"""

from collections.abc import Callable

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0


def pause_seconds(
    retries: int, *, uniform: Callable[[float, float], float], longest_seconds: float = LONGEST_PAUSE_SECONDS
) -> float:
    """Return the seconds to pause before a retry of that number, from 1; `uniform` draws between two numbers."""
    doublings = min(retries - 1, 16)
    return uniform(0.0, min(longest_seconds, FIRST_PAUSE_SECONDS * 2**doublings))
