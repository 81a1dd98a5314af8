"""Hedging for tests that wait for a second request: it is sent soon, and from the first sample on."""

from rewardpool._client.rules.hedging import MIN_KNOWN, Hedging


def quick(hedges: int | None, *, concurrency: int) -> Hedging:
    """Hedging with a floor of 80 ms that knows what is usual from the start, and a budget for so many; None is all."""
    hedging = Hedging(concurrency=concurrency, floor_seconds=0.08)
    for _ in range(MIN_KNOWN):
        hedging.answered(0.001)
    if hedges is not None:
        while hedging.wait(1_000.0) == 0:
            hedging.spend()
        hedging.won(hedges)
    return hedging
