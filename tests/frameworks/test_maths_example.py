"""The maths example, by the real math-verify."""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rewardpool.sandbox import Call, run

EXAMPLE = Path(__file__).parents[2] / "examples" / "maths"
PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "maths.md"
Checker = Callable[[str, str], float]


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Checker]:
    monkeypatch.syspath_prepend(EXAMPLE)
    maths = importlib.import_module("maths")
    yield lambda response, right: maths.compute_score("test", response, right, {})
    del sys.modules["maths"]


@pytest.mark.parametrize(
    ("response", "right"),
    [
        (r"So it is \boxed{\frac{2}{4}}.", r"\frac{1}{2}"),
        ("The answer is $0.5$", r"\frac12"),
        (r"\boxed{\{2, 1\}}", r"\{1, 2\}"),
        (r"\boxed{2\sqrt{2}}", r"\sqrt{8}"),
    ],
)
def test_an_equal_answer_is_right(checker: Checker, response: str, right: str) -> None:
    assert checker(response, right) == 1.0


@pytest.mark.parametrize("response", [r"\boxed{3}", "no number", r"\boxed{2", "", r"\boxed{1} or \boxed{2} or 3"])
def test_any_other_answer_is_wrong(checker: Checker, response: str) -> None:
    assert checker(response, "4") == 0.0


def test_a_right_answer_that_cannot_be_read_is_no_score(checker: Checker) -> None:
    with pytest.raises(ValueError, match="math-verify cannot read the right answer"):
        checker(r"\boxed{1}", "")


def test_a_right_answer_is_right_in_a_thread(checker: Checker) -> None:
    scores: list[float] = []
    thread = threading.Thread(target=lambda: scores.append(checker(r"\boxed{4}", "4")))
    thread.start()
    thread.join()
    assert scores == [1.0]


def test_an_answer_without_end_uses_its_processor_time() -> None:
    code = (EXAMPLE / "maths.py").read_text()
    calls = [Call(function="compute_score", args=["", "$9^{9^{9^9}}$", "2", {}], expected=0.0)]
    verdict = run(code, calls=calls, cpu_seconds=1, memory_mib=1024, preload=["math_verify"])
    assert verdict.outcome == "cpu_exceeded", verdict


def test_the_page_shows_the_example() -> None:
    page = PAGE.read_text()
    assert (EXAMPLE / "maths.py").read_text() in page
    assert (EXAMPLE / "pool.yaml").read_text() in page
