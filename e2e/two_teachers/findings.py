"""What the answers show. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

TOLERANCE = 1e-4
"""Between vLLM's log-probabilities and transformers' in float32; the judge's are the same."""


@dataclass
class Findings:
    """Counts of answers, and of those that are not as they should be."""

    answers: int = 0
    lost: int = 0
    """Without an answer."""
    wrong: int = 0
    """Not within `TOLERANCE` of what is true."""
    largest_difference: float = 0.0
    first_seconds: dict[str, float] = field(default_factory=dict)
    """From the job's start to the first answer of each."""
    last_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


def findings(answers: Iterable[Mapping[str, Any]], asked: Mapping[str, int]) -> Findings:
    """Compare the answers with what was asked: of whom, how many."""
    found, left = Findings(), {(of, index) for of, count in asked.items() for index in range(count)}
    for answer in answers:
        of, difference = answer["of"], answer["difference"]
        if difference is None or (of, answer["index"]) not in left:
            found.problems.append(f"{of} {answer['index']}: {answer['problem'] or 'answered twice'}")
            continue
        left.discard((of, answer["index"]))
        found.answers += 1
        found.wrong += not difference <= TOLERANCE
        found.largest_difference = max(found.largest_difference, difference)
        found.first_seconds.setdefault(of, answer["seconds"])
        found.last_seconds = answer["seconds"]
    found.lost = len(left)
    return found
