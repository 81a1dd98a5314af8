"""A live pool's scores against those that the model should give: what is compared, and by which tolerance; pure.

`reference.py` gets the scores of transformers; `rewardpool verify` (`commands/verify.py`) puts both together.
`determinism.py` compares a pool with itself, by what `replicas.py` has each replica answer.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rewardpool_api.engines import engines_where

OnProgress = Callable[[int], None]
STEPS: Final = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
"""By dtype: the distance between two neighbouring numbers from 1 to 2. From 8 to 16 it is eight times that."""
STEPS_ALLOWED: Final = 4
# For a score from 1 to 2; sums of a model in float32 differ by far less.
FLOAT32_ALLOWED: Final = 1e-4
DECADES: Final = range(-7, 1)
"""Powers of ten at which the histogram's bins begin; below the first lies one more, and the last has no end."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Largest difference of a score from the expected one."""

    dtype: str = "float32"
    max_abs_diff: float | None = None
    """The same for every score, in place of what follows from the dtype."""

    def at(self, score: float) -> float:
        """The largest difference allowed at a score, in units of the score."""
        if self.max_abs_diff is not None:
            return self.max_abs_diff
        base = STEPS_ALLOWED * STEPS[self.dtype] if self.dtype in STEPS else FLOAT32_ALLOWED
        return float(base * 2.0 ** math.floor(math.log2(max(1.0, abs(score)))))


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One text."""

    line: int
    """Its number in the file, from 1."""
    text: str
    expected: float
    score: float | None
    """The pool's; None where it gave none."""
    problem: str | None
    allowed: float

    @property
    def difference(self) -> float:
        """Absolute, in units of the score; infinite without a score."""
        return math.inf if self.score is None else abs(self.score - self.expected)

    @property
    def holds(self) -> bool:
        return self.difference <= self.allowed


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Texts whose difference is at least `low` and below `high`."""

    low: float
    high: float
    texts: int


@dataclass(frozen=True, kw_only=True)
class ScoreComparison:
    """All texts, in the file's order."""

    items: tuple[Compared, ...]

    @property
    def holds(self) -> bool:
        return all(item.holds for item in self.items)

    @property
    def worst(self) -> tuple[Compared, ...]:
        """The texts from the one that is furthest off, in units of what is allowed there."""
        return tuple(sorted(self.items, key=lambda item: item.difference / (item.allowed or 1e-300), reverse=True))

    @property
    def max_abs_diff(self) -> float | None:
        """The largest difference of those that have a score; None where none has."""
        return max((item.difference for item in self.items if item.score is not None), default=None)

    @property
    def mean_abs_diff(self) -> float | None:
        found = [item.difference for item in self.items if item.score is not None]
        return math.fsum(found) / len(found) if found else None

    @property
    def histogram(self) -> tuple[Bin, ...]:
        """Number of texts by their difference, in powers of ten; texts without a score are in none."""
        edges = [0.0, *(10.0**power for power in DECADES), math.inf]
        counts = [0] * (len(edges) - 1)
        for item in self.items:
            if item.score is not None:
                counts[bisect_right(edges, item.difference) - 1] += 1
        return tuple(Bin(low=edges[n], high=edges[n + 1], texts=count) for n, count in enumerate(counts))

    @property
    def pairs(self) -> int:
        """Pairs of texts that are expected to have different scores."""
        known = sorted(item.expected for item in self.items if item.score is not None)
        equal = {score: known.count(score) for score in set(known)}
        return len(known) * (len(known) - 1) // 2 - sum(n * (n - 1) // 2 for n in equal.values())

    @property
    def rank_flips(self) -> int:
        """Pairs that the pool puts into the other order."""
        flips = 0
        seen: list[float] = []
        for _, score in sorted((item.expected, item.score) for item in self.items if item.score is not None):
            flips += len(seen) - bisect_right(seen, score)
            insort(seen, score)
        return flips

    def as_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "texts": len(self.items),
            "unscored": sum(item.score is None for item in self.items),
            "max_abs_diff": self.max_abs_diff,
            "mean_abs_diff": self.mean_abs_diff,
            "pairs": self.pairs,
            "rank_flips": self.rank_flips,
            "histogram": [
                {"from": each.low, "to": each.high if math.isfinite(each.high) else None, "texts": each.texts}
                for each in self.histogram
            ],
            "items": [
                {
                    "line": item.line,
                    "text": item.text,
                    "expected": item.expected,
                    "score": item.score,
                    "difference": item.difference if item.score is not None else None,
                    "allowed": item.allowed,
                    "holds": item.holds,
                    **({"problem": item.problem} if item.problem is not None else {}),
                }
                for item in self.items
            ],
        }


def compare(
    expected: Sequence[tuple[int, str, float]], outcomes: Sequence[float | str], tolerance: Tolerance
) -> ScoreComparison:
    """Put expected and live scores side by side.

    Args:
        expected: line, text and score of each.
        outcomes: the pool's score of each, or why it gave none.
    """
    items = []
    for (line, text, score), outcome in zip(expected, outcomes, strict=True):
        live, problem = (None, outcome) if isinstance(outcome, str) else (outcome, None)
        allowed = tolerance.at(score)
        items.append(Compared(line=line, text=text, expected=score, score=live, problem=problem, allowed=allowed))
    return ScoreComparison(items=tuple(items))


def served_dtype(requested: str, *, of_checkpoint: str | None, engine: str) -> str | None:
    """Return the number format of a pool's weights; None where that is unknown.

    Args:
        of_checkpoint: `dtype` of config.json; None where that is not here.
    """
    if requested != "auto":
        return requested
    if of_checkpoint == "float32" and engine in engines_where(lambda can: can.halves_float32):
        return "float16"
    return of_checkpoint
