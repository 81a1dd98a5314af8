"""Waits for scores on a test's clock."""

from collections.abc import Callable

from rewardpool import ScoreWaits


def waits_on(clock: Callable[[], float], *, begin: float | None = None) -> ScoreWaits:
    """Return score waits whose times are those of `clock`."""
    waits = ScoreWaits(begin=begin)
    waits._clock = clock
    return waits
