"""The golden set: texts whose scores show whether two revisions are the same judge.

One JSON object per line, `{"text": "...", "score": 0.42}`; the score, which is what is expected, may be left out. What
a revision scored is kept on its Deployment as one annotation, so it is asked for once and outlives its workers.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, Final

from rewardpool_runtime.untrusted import printable

# A revision scores all of them before it takes traffic, and their scores fit into an annotation.
MAX_TEXTS: Final = 256
MAX_REFUSAL: Final = 300  # characters


class GoldenSetError(ValueError):
    """The golden set cannot be used; the text says which line is wrong and how it should be."""


@dataclass(frozen=True, kw_only=True)
class GoldenText:
    """One line."""

    line: int
    """Its number in the file, from 1."""
    text: str
    expected: float | None = None
    """The score that it should have; None: whatever the stable revision gives it."""


@dataclass(frozen=True, kw_only=True)
class GoldenSet:
    """All lines, in their order."""

    texts: tuple[GoldenText, ...]

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that stand for the texts; other expected scores need no new measurement."""
        canonical = json.dumps([item.text for item in self.texts])
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class GoldenProblem:
    """Reason for a missing golden set."""

    message: str


@dataclass(frozen=True, kw_only=True)
class GoldenScores:
    """Scores of a golden set by one revision."""

    digest: str
    scores: tuple[float | None, ...]
    """In the order of the texts; None where the model gave none."""
    refusal: str | None = None

    def to_annotation(self) -> str:
        entry: dict[str, Any] = {"set": self.digest, "scores": self.scores}
        return json.dumps(entry | ({"refusal": self.refusal} if self.refusal else {}), separators=(",", ":"))


def parse_golden_set(content: str, *, most: int = MAX_TEXTS) -> GoldenSet:
    """Read a golden set, an object per line; empty lines and a byte order mark are skipped.

    Raises:
        GoldenSetError: no lines, too many, or one that is not what it should be.
    """
    # Not splitlines: JSON strings may hold U+2028, U+2029 and U+0085, which it also splits at.
    numbered = enumerate(content.removeprefix("\ufeff").split("\n"), start=1)
    lines = [(number, line) for number, line in numbered if line.strip()]
    # Errors quote nothing: whoever names a ConfigMap in a pool need not have the right to read it.
    if not lines:
        raise GoldenSetError('it has no lines; write one JSON object per line: {"text": "..."}')
    if len(lines) > most:
        raise GoldenSetError(f"it has {len(lines)} texts; at most {most} are compared")
    return GoldenSet(texts=tuple(_parse_line(number, line) for number, line in lines))


def _parse_line(number: int, line: str) -> GoldenText:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise GoldenSetError(f"line {number} is not JSON: {error}") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        raise GoldenSetError(f'line {number} is not an object with a text: {{"text": "...", "score": 0.42}}')
    unknown = sorted(entry.keys() - {"text", "score"})
    if unknown:
        raise GoldenSetError(f"line {number} has fields beside text and score, of which there are no others")
    expected = entry.get("score")
    if expected is not None and not _is_score(expected):
        raise GoldenSetError(f"line {number} has a score that is not a finite number")
    return GoldenText(line=number, text=entry["text"], expected=None if expected is None else float(expected))


def scores_of_annotation(annotation: str) -> GoldenScores | None:
    """The scores in an annotation; None when it is not one of ours, which has them measured anew."""
    try:
        entry = json.loads(annotation)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("set"), str):
        return None
    found = entry.get("scores")
    if not isinstance(found, list) or not all(score is None or _is_score(score) for score in found):
        return None
    refusal = entry.get("refusal")
    refusal = printable(refusal, most=MAX_REFUSAL) if isinstance(refusal, str) else None
    scores = tuple(None if score is None else float(score) for score in found)
    return GoldenScores(digest=entry["set"], scores=scores, refusal=refusal)


def _is_score(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
