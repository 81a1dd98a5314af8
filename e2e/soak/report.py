"""The figures of a soak and its picture, from what was written while it ran."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soak.ledger import Verdict

PROMPT_SECONDS = 1.0
"""A sample that is answered within this was not in trouble."""
LEAST_FAULTS_PER_MINUTE = 6
LEAST_KINDS = 12
LEAST_KINDS_MINUTES = 2.0
"""A soak shorter than this has too few faults for so many kinds."""


@dataclass(frozen=True, kw_only=True)
class Happened:
    """A fault or a change, as it was done.

    Attributes:
        kind: The fault's kind, or the change's name.
        began: In seconds since 1970, as all times here.
        ended: When it was undone; of what is over at once, when it was done.
        is_change: Whether it is no fault but what a user does.
    """

    kind: str
    began: float
    ended: float
    is_change: bool = False


@dataclass(frozen=True, kw_only=True)
class Timed:
    """When a sample was asked for and when it was answered, in seconds since 1970."""

    due: float
    answered: float


def recovery_seconds(happened: Iterable[Happened], samples: Sequence[Timed]) -> dict[str, dict[str, float]]:
    """By kind, the seconds from a fault's end until samples are answered within `PROMPT_SECONDS` again.

    It is what whoever asks sees of a fault: 0.0 where none of the samples due after it waited. Where one fault's
    trouble reaches into another one, both have it.
    """
    slow = sorted(sample.due for sample in samples if sample.answered - sample.due > PROMPT_SECONDS)
    found: dict[str, list[float]] = {}
    for fault in happened:
        if not fault.is_change:
            found.setdefault(fault.kind, []).append(_recovered(slow, fault.ended) - fault.ended)
    return {
        kind: {"median": round(statistics.median(times), 2), "max": round(max(times), 2)}
        for kind, times in sorted(found.items())
    }


def _recovered(slow: Sequence[float], ended: float) -> float:
    """When, from then on, a second passed whose samples were all answered promptly."""
    clear = ended
    for due in slow:
        if due < clear:
            continue
        if due - clear >= PROMPT_SECONDS:
            break
        clear = due
    return clear


def longest_stall(samples: Sequence[Timed]) -> float:
    """The longest time in which samples were waiting and none was answered, in seconds."""
    events = [(sample.due, 1) for sample in samples]
    events += [(sample.answered, -1) for sample in samples]
    longest, waiting, since = 0.0, 0, 0.0
    for at, step in sorted(events):
        if waiting and step < 0:
            longest = max(longest, at - since)
        if not waiting or step < 0:
            since = at
        waiting += step
    return longest


def report(
    *,
    minutes: float,
    seed: int,
    happened: Sequence[Happened],
    samples: Sequence[Timed],
    verdict: Verdict,
    rss_growth_mb: Mapping[str, float],
) -> dict[str, Any]:
    """What is written to `report.json`."""
    faults = Counter(done.kind for done in happened if not done.is_change)
    return {
        "minutes": minutes,
        "seed": seed,
        "faults": dict(sorted(faults.items())),
        "samples": verdict.samples,
        "lost": verdict.lost,
        "wrong": verdict.wrong,
        "duplicated": verdict.duplicated,
        "invented": verdict.invented,
        "longest_stall_seconds": round(longest_stall(samples), 2),
        "recovery_seconds": recovery_seconds(happened, samples),
        "rss_growth_mb": dict(rss_growth_mb),
    }


def shortcomings(made: Mapping[str, Any]) -> list[str]:
    """Why a soak with that report did not pass; empty where it did."""
    found = [f"{made[name]} samples {name}" for name in ("lost", "wrong", "duplicated", "invented") if made[name]]
    played, wanted = sum(made["faults"].values()), int(LEAST_FAULTS_PER_MINUTE * made["minutes"])
    if played < wanted:
        found.append(f"only {played} faults, not {wanted}")
    if made["minutes"] >= LEAST_KINDS_MINUTES and len(made["faults"]) < LEAST_KINDS:
        found.append(f"only {len(made['faults'])} kinds of faults, not {LEAST_KINDS}")
    return found


def write(path: Path, made: Mapping[str, Any]) -> None:
    """Write the report."""
    path.write_text(json.dumps(made, indent=2) + "\n")
