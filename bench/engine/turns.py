"""All ways once in every round, with the CPU time that this process, the router and the workers spent on each."""

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import psutil
from client_cost.figures import Ratios, Round, Spread, ratio, round_of, spread
from ways import Way

CLOSE: Final = 1e-5
"""Scores of one text differ by no more: an engine's rounding depends on what else is in a batch."""


class Scores:
    """Compares every score of a text with its first one, which came directly from an engine."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self.largest_difference = 0.0

    def check(self, text: str, score: float) -> None:
        """Raise RuntimeError when this is another score than the text's first one."""
        difference = abs(self._first.setdefault(text, score) - score)
        self.largest_difference = max(self.largest_difference, difference)
        if difference > CLOSE:
            raise RuntimeError(f"a text scored {self._first[text]} at first is scored {score} now: {text[:50]!r}")

    def check_distinct(self) -> None:
        """Raise RuntimeError when texts have the same score, so that a swapped one would not be noticed."""
        values = set(self._first.values())
        if len(values) < len(self._first) / 2:
            raise RuntimeError(f"{len(self._first)} texts have only {len(values)} scores")


def cpu_seconds() -> dict[str, float]:
    """CPU seconds so far: of this process (`client`), and of its children: `router`, and `workers`, all others."""
    used = {"client": time.process_time(), "router": 0.0, "workers": 0.0}
    for child in psutil.Process().children(recursive=True):
        try:
            times, words = child.cpu_times(), " ".join(child.cmdline())
        except psutil.Error:  # a function's process that ends now; its parent counts it
            continue
        # Both the launcher's command line and the title that sglang-router gives itself.
        role = "router" if "router" in words else "workers"
        used[role] += times.user + times.system + times.children_user + times.children_system
    return used


async def take_turns(
    ways: Mapping[str, Way],
    texts: Sequence[str],
    *,
    rounds: int,
    ratios: Ratios,
    scores: Scores,
    done: Callable[[], None],
) -> dict[str, Any]:
    """Every way once in each round, after a round that does not count; what the result's file says of the setting."""
    measured: dict[str, list[Round]] = {name: [] for name in ways}
    cpu: dict[str, list[dict[str, float]]] = defaultdict(list)
    for way in ways.values():
        await way(texts, [])
    scores.check_distinct()
    for number in range(rounds):
        # Forwards and backwards in turn, so that nobody is always the one after another.
        for name in list(ways)[:: -1 if number % 2 else 1]:
            gc.collect()
            before, began, latencies = cpu_seconds(), time.perf_counter(), list[float]()
            await ways[name](texts, latencies)
            measured[name].append(round_of(latencies, seconds=time.perf_counter() - began))
            after = cpu_seconds()
            cpu[name].append({role: 1000 * (after[role] - before[role]) / len(texts) for role in after})
            done()
    return {
        "rounds": rounds,
        "samples": len(texts),
        "ways": {name: _way(measured[name], cpu[name]) for name in ways},
        "ratios": {name: ratio(measured, one, other) for name, (one, other) in ratios.items()},
        "cpu_ratios": {name: cpu_ratio(cpu[one], cpu[other]) for name, (one, other) in ratios.items()},
        "largest_difference": scores.largest_difference,
    }


def cpu_ratio(one: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]]) -> Spread:
    """Samples for a CPU second of everybody, one way over another; where all cores are busy, what the rates come to."""
    return spread([sum(b.values()) / sum(a.values()) for a, b in zip(one, other, strict=True)], digits=3)


def _way(rounds: Sequence[Round], cpu: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {
        "samples_per_second": spread([one.samples_per_second for one in rounds], digits=1),
        "p50_ms": spread([one.p50_ms for one in rounds], digits=2),
        "p99_ms": spread([one.p99_ms for one in rounds], digits=2),
        "cpu_ms": {role: round(statistics.median(one[role] for one in cpu), 3) for role in cpu[0]},
    }
