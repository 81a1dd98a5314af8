"""From what was timed to the figures that are told: medians, spread, and ratios round by round. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Spread = dict[str, float]
"""`median`, `min` and `max` over the rounds."""
Ratios = Mapping[str, tuple[str, str]]
"""By name: which way over which other one."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is fixed while the ways take turns."""

    service_ms: int
    concurrency: int

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.service_ms} ms, {self.concurrency:,} at a time"


SETTINGS: Final = tuple(
    Setting(service_ms=service, concurrency=concurrency) for service in (0, 20) for concurrency in (64, 1024)
)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One way in one round."""

    samples_per_second: float
    p50_ms: float
    p99_ms: float


Rounds = Mapping[str, Sequence[Round]]
"""By way, in the order of the rounds: the same number for each."""


def round_of(latencies: Sequence[float], *, seconds: float) -> Round:
    """One round's figures.

    Args:
        latencies: Seconds of each sample.
        seconds: From the first sample's start to the last one's score.

    Raises:
        ValueError: There is no sample.
    """
    if not latencies:
        raise ValueError("a round needs a sample")
    ordered = sorted(latencies)
    return Round(
        samples_per_second=len(ordered) / seconds,
        p50_ms=1000 * quantile(ordered, 0.5),
        p99_ms=1000 * quantile(ordered, 0.99),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed (nearest rank)."""
    rank = max(1, -(-len(ordered) * round(share * 1000) // 1000))
    return ordered[rank - 1]


def spread(values: Sequence[float], *, digits: int) -> Spread:
    """Median and extremes."""
    named = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, digits) for name, value in named.items()}


def ratio(rounds: Rounds, one: str, other: str) -> Spread:
    """Samples per second of one way over another's in the same round, which the machine's moods leave alone."""
    pairs = zip(rounds[one], rounds[other], strict=True)
    return spread([a.samples_per_second / b.samples_per_second for a, b in pairs], digits=3)


def summary(setting: Setting, rounds: Rounds, ratios: Ratios) -> dict[str, Any]:
    """What the result's file says of one setting; ratios of ways that were not run are left out."""
    return {
        "service_ms": setting.service_ms,
        "concurrency": setting.concurrency,
        "rounds": len(next(iter(rounds.values()))),
        "ways": {name: _way(given) for name, given in rounds.items()},
        "ratios": {
            name: ratio(rounds, one, other)
            for name, (one, other) in ratios.items()
            if one in rounds and other in rounds
        },
    }


def _way(rounds: Sequence[Round]) -> dict[str, Spread]:
    return {
        "samples_per_second": spread([one.samples_per_second for one in rounds], digits=0),
        "p50_ms": spread([one.p50_ms for one in rounds], digits=2),
        "p99_ms": spread([one.p99_ms for one in rounds], digits=2),
    }
