"""From what was timed to the figures that are told: medians, spread, and ratios round by round. Pure."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FIFTHS: Final = 5
Spread = dict[str, float]
"""`median`, `min` and `max` over the rounds."""
Ratios = Mapping[str, tuple[str, str]]
"""By name: which way over which other one."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is fixed while the ways take turns."""

    service_ms: int
    concurrency: int
    kind: str = "text"
    """`text`, of 1.4 kB, or `token ids`, 4,096 of them."""

    @property
    def title(self) -> str:
        """For people."""
        kind = "" if self.kind == "text" else f", {self.kind}"
        return f"{self.service_ms} ms, {self.concurrency:,} at a time{kind}"


def setting_of(told: Mapping[str, Any]) -> Setting:
    """That of a summary."""
    return Setting(service_ms=told["service_ms"], concurrency=told["concurrency"], kind=told["kind"])


VERL_SETTINGS: Final = tuple(
    Setting(service_ms=service, concurrency=concurrency) for service in (0, 20) for concurrency in (64, 1024)
)
HTTP_SETTINGS: Final = (
    *(
        Setting(service_ms=service, concurrency=concurrency, kind=kind)
        for kind in ("text", "token ids")
        for service in (0, 20)
        for concurrency in (64, 1024, 4096)
    ),
    Setting(service_ms=20, concurrency=16_384),
)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One way in one round."""

    samples_per_second: float
    p50_ms: float
    p99_ms: float
    first_ms: float | None = None
    """Until the first sample had its score; None where that is not known."""
    last_fifth: float | None = None
    """Of the samples: their rate over that of the first fifth; None where that is not known."""


class Latencies(list[float]):
    """Seconds of each sample, in the order in which they were done, and how long after the start that was."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._clock = clock
        self._began = clock()
        self.done_after: list[float] = []

    def append(self, seconds: float) -> None:
        """One more is done."""
        super().append(seconds)
        self.done_after.append(self._clock() - self._began)


Rounds = Mapping[str, Sequence[Round]]
"""By way, in the order of the rounds: the same number for each."""


def round_of(latencies: Sequence[float], *, seconds: float, done_after: Sequence[float] = ()) -> Round:
    """One round's figures.

    Args:
        latencies: Seconds of each sample.
        seconds: From the first sample's start to the last one's score.
        done_after: Seconds from the first sample's start to the score of each, in their order; empty where that is not
            known.

    Raises:
        ValueError: There is no sample.
    """
    if not latencies:
        raise ValueError("a round needs a sample")
    ordered = sorted(latencies)
    fifth = len(done_after) // FIFTHS
    return Round(
        samples_per_second=len(ordered) / seconds,
        p50_ms=1000 * quantile(ordered, 0.5),
        p99_ms=1000 * quantile(ordered, 0.99),
        first_ms=1000 * done_after[0] if done_after else None,
        last_fifth=done_after[fifth - 1] / (done_after[-1] - done_after[-1 - fifth]) if fifth else None,
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
        "kind": setting.kind,
        "rounds": len(next(iter(rounds.values()))),
        "ways": {name: _way(given) for name, given in rounds.items()},
        "ratios": {
            name: ratio(rounds, one, other)
            for name, (one, other) in ratios.items()
            if one in rounds and other in rounds
        },
    }


def with_setting(settings: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The settings of a part with this one in the place of what was found in it before."""
    which = ("service_ms", "concurrency", "kind")
    return [one for one in settings if any(one.get(name) != found.get(name) for name in which)] + [found]


def _way(rounds: Sequence[Round]) -> dict[str, Spread]:
    figures = {"samples_per_second": 0, "p50_ms": 2, "p99_ms": 2, "first_ms": 2, "last_fifth": 3}
    found = {name: [getattr(one, name) for one in rounds] for name in figures}
    return {name: spread(values, digits=figures[name]) for name, values in found.items() if None not in values}
