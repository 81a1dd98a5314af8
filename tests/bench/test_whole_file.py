"""`make bench-file`: what it counts as a row that is there once, twice, not at all, or with a wrong score."""

from typing import Any

import pytest
from whole_file.__main__ import is_right
from whole_file.checks import Found, of_ledger, of_output
from whole_file.rewards import expected

RESPONSES = ["a", "b", "c"]


def test_rows_that_are_twice_missing_or_wrong_are_counted() -> None:
    lines = [{"row": 0, "score": expected("a")}, {"row": 0, "score": expected("a")}, {"row": 1, "score": None}]
    assert of_output(RESPONSES, lines) == Found(once=1, twice=1, missing=1, wrong=1)


def test_a_record_belongs_to_the_row_of_its_response() -> None:
    records = [{"response": one, "score": expected("c")} for one in ("c", "b")]
    assert of_ledger(RESPONSES, records) == Found(once=2, twice=0, missing=1, wrong=1)


@pytest.mark.parametrize(
    ("place", "value"),
    [(("file", "once"), 2), (("file", "wrong"), 1), (("ledger", "wrong"), 1), (("rescored", "equal"), 2)],
)
def test_one_wrong_score_or_row_fails_the_bench(place: tuple[str, str], value: int) -> None:
    result: dict[str, Any] = {
        "rows": 3,
        "file": {"once": 3, "wrong": 0},
        "ledger": {"wrong": 0},
        "rescored": {"rows": 3, "both": 3, "equal": 3},
    }
    assert is_right(result)
    result[place[0]][place[1]] = value
    assert not is_right(result)
