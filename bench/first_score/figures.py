"""Many first scores as one entry of the result. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

UNSEEN: Final = "unseen"
"""What the caller waited for beyond what the pool saw: its way there and back, and the time until the first look."""


def entry(seconds: Sequence[float], firsts: Sequence[Mapping[str, Any]], alone: Sequence[float] = ()) -> dict[str, Any]:
    """The median and the longest of all rounds, the median of each part, and the engine's own start.

    Args:
        seconds: that each round's caller waited.
        firsts: `status.firstScore` after each round.
        alone: seconds of the engine's own starts; empty where none is measured.
    """
    parts = [dict(first["parts"]) for first in firsts]
    unseen = [waited - first["seconds"] for waited, first in zip(seconds, firsts, strict=True)]
    made: dict[str, Any] = {
        "rounds": len(seconds),
        "seconds": {"median": _median(seconds), "max": round(max(seconds), 3)},
        "parts": {**medians(parts), UNSEEN: _median(unseen)},
    }
    return made | ({"engine_alone": {"median": _median(alone), "max": round(max(alone), 3)}} if alone else {})


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each part of a round, those of the first one; a part that a round lacks took no time."""
    return {part: _median([one.get(part, 0.0) for one in rounds]) for part in rounds[0]}


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)
