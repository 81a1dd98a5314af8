"""What became of the rows and of their records. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whole_file.rewards import expected


@dataclass(frozen=True, kw_only=True)
class Found:
    """Counts of rows or of records."""

    once: int
    """Rows that are there once."""
    twice: int
    """Rows that are there more than once."""
    missing: int
    wrong: int
    """Rows with a score that is not that of their response, or with none."""


def of_output(responses: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> Found:
    """Compare the scores of a file with its rows."""
    return _found(len(responses), ((line["row"], responses[line["row"]], line["score"]) for line in lines))


def of_ledger(responses: Sequence[str], records: Iterable[Mapping[str, Any]]) -> Found:
    """Compare a ledger's records with the rows, which all have another response."""
    rows = {response: row for row, response in enumerate(responses)}
    return _found(len(responses), ((rows[one["response"]], one["response"], one["score"]) for one in records))


def _found(rows: int, scored: Iterable[tuple[int, str, float | None]]) -> Found:
    seen, wrong = Counter[int](), 0
    for row, response, score in scored:
        seen[row] += 1
        wrong += score != expected(response)
    once = sum(times == 1 for times in seen.values())
    return Found(once=once, twice=len(seen) - once, missing=rows - len(seen), wrong=wrong)
