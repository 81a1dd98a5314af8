"""The maths example, by the real math-verify."""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rewardpool_runtime.functions.limits import CallLimits
from rewardpool_runtime.functions.outcome import Failed, FunctionArguments, FunctionScore
from rewardpool_runtime.functions.runner import ProcessRunner
from rewardpool_runtime.functions.source import FunctionSource

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


async def test_an_answer_without_end_is_the_policys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    runner = ProcessRunner(
        FunctionSource.from_function("maths:compute_score"), limits=CallLimits(cpu_seconds=1), env={}
    )
    await runner.start()
    try:
        outcome = await runner.run(FunctionArguments(data_source="", solution_str="$9^{9^{9^9}}$", ground_truth="2"))
        assert isinstance(outcome, Failed)
        assert outcome.fault == "policy"
        right = FunctionArguments(data_source="", solution_str="$9^2$", ground_truth="81")
        assert await runner.run(right) == FunctionScore(1.0)
    finally:
        await runner.close()


def test_the_page_shows_the_example() -> None:
    page = PAGE.read_text()
    assert (EXAMPLE / "maths.py").read_text() in page
    assert (EXAMPLE / "pool.yaml").read_text() in page
