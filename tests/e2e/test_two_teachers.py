"""What the answers of `make e2e-teachers` show: a check that is too kind would pass a zero for a log-probability."""

from typing import Any

import pytest

from two_teachers.findings import findings
from two_teachers.job import largest_difference

ASKED = {"maths": 2}


def answer(index: int, difference: float | None = 0.0, **fields: Any) -> dict[str, Any]:
    return {"of": "maths", "index": index, "seconds": 1.0, "difference": difference, "problem": None, **fields}


@pytest.mark.parametrize(
    ("answers", "lost", "wrong", "problems"),
    [
        ([answer(0), answer(1)], 0, 0, 0),
        ([answer(0)], 1, 0, 0),
        ([answer(0), answer(1, 0.01)], 0, 1, 0),
        ([answer(0), answer(1, float("nan"))], 0, 1, 0),
        ([answer(0), answer(1, None, problem="TimeoutError")], 1, 0, 1),
        ([answer(0), answer(0), answer(1)], 0, 0, 1),
        ([answer(0), answer(1), answer(2)], 0, 0, 1),
        ([answer(0), answer(1, of="code")], 1, 0, 1),
    ],
)
def test_each_fault_of_an_answer_is_counted(answers: list[Any], lost: int, wrong: int, problems: int) -> None:
    found = findings(answers, ASKED)
    assert (found.lost, found.wrong, len(found.problems)) == (lost, wrong, problems)


def test_an_answer_of_another_length_is_compared_with_nothing() -> None:
    with pytest.raises(ValueError, match="longer"):
        largest_difference([-1.0], [-1.0, -2.0])
