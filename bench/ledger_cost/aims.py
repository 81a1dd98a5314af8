"""What the figures shall be, and whether they are. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

LEAST_RATIO: Final = 0.95
"""Samples a second with a ledger, over those without one."""


class Turn(NamedTuple):
    """A way's turn in one round."""

    samples_per_second: float
    cpu_us: float
    """Microseconds of processor time of this process for a sample, on all threads."""


def figures(turns: Mapping[str, Sequence[Turn]], *, without: str) -> dict[str, Any]:
    """Return the figures of each way; ratios are of two turns of one round.

    Args:
        turns: One of each round, by the way.
        without: The way that has no ledger.
    """
    found = {}
    for way, each in turns.items():
        pairs = list(zip(each, turns[without], strict=True))
        found[way] = {
            "samples_per_second": _spread([one.samples_per_second for one in each]),
            "ratio": _spread([one.samples_per_second / plain.samples_per_second for one, plain in pairs]),
            "cpu_us": _spread([one.cpu_us for one in each]),
            "cpu_ratio": _spread([plain.cpu_us / one.cpu_us for one, plain in pairs]),
        }
    return found


def aims(ways: Mapping[str, Any], *, without: str) -> list[dict[str, Any]]:
    """Return all aims, as the result's file tells them."""
    return [
        {
            "what": "samples/s with a ledger, over those without",
            "where": way,
            "measured": one["ratio"]["median"],
            "aim": f">= {LEAST_RATIO:g}",
            "met": one["ratio"]["median"] >= LEAST_RATIO,
        }
        for way, one in ways.items()
        if way != without
    ]


def _spread(values: Sequence[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(median, 4), "q25": round(low, 4), "q75": round(high, 4)}
