"""What a function is, what its results become, and what is refused before the first sample."""

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool.errors import SandboxError
from rewardpool_runtime.functions.load import FunctionLoadError, check_signature, load_function
from rewardpool_runtime.functions.outcome import (
    Failed,
    FunctionArguments,
    FunctionScore,
    failed,
    from_wire,
    read_result,
    to_wire,
)
from rewardpool_worker.engine_side.middleware.errors import InvalidRequestError
from rewardpool_worker.function_sample import parse_sample


@pytest.fixture(autouse=True)
def _users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "worker" / "functions"), *sys.path])


# What is a score


@pytest.mark.parametrize(("result", "value"), [(1, 1.0), (-0.5, -0.5), (Fraction(1, 4), 0.25), ({"score": 2}, 2.0)])
def test_any_real_number_is_a_score(result: Any, value: float) -> None:
    assert read_result(result) == FunctionScore(value)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_no_score_is_changed(value: float) -> None:
    assert read_result(value) == FunctionScore(float(value))


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (True, 1.0),
        (numpy.bool_(False), 0.0),
        (numpy.float32(0.5), 0.5),
        (numpy.array(2), 2.0),
        ({"score": numpy.bool_(True)}, 1.0),
    ],
)
def test_a_truth_value_and_a_scalar_of_numpy_are_scores(result: Any, value: float) -> None:
    assert read_result(result) == FunctionScore(value)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "returned None"),
        ("1.0", "returned '1.0' (a str)"),
        (float("nan"), "returned nan"),
        (float("inf"), "returned inf"),
        (numpy.float32("nan"), "no finite number"),
        ([1.0], r"returned [1.0] (a list)"),
        (numpy.array([1.0]), "returned array([1.]) (a ndarray)"),
        ({}, "without `score`"),
        ({"reward": 1.0}, "without `score`; it has ['reward']"),
        ({"score": None}, "returned None"),
        (10**400, "no finite number"),
        pytest.param(10**5000, "returned an int, no finite number", id="digits"),
        (1j, "returned 1j (a complex)"),
    ],
)
def test_anything_else_is_a_failure_that_shows_the_value(result: Any, said: str) -> None:
    outcome = read_result(result)
    assert isinstance(outcome, Failed)
    assert said in outcome.message


def test_what_comes_beside_the_score_is_json() -> None:
    result = {"score": 1, "acc": numpy.bool_(True), "pred": numpy.array([1, 2]), "nan": float("nan")}
    assert read_result(result) == FunctionScore(1.0, {"acc": True, "pred": [1, 2], "nan": None})


class Unreadable:
    def tolist(self) -> list[Any]:
        raise RuntimeError("the device is gone")


@pytest.mark.parametrize(
    ("pred", "why"),
    [(Path("/a"), "is a PosixPath"), ((1, 2), "is a tuple"), (Unreadable(), "cannot be read: the device is gone")],
)
def test_what_json_cannot_hold_never_costs_the_score(pred: Any, why: str) -> None:
    outcome = read_result({"score": 1, "acc": 1, "pred": pred})
    assert isinstance(outcome, FunctionScore)
    assert (outcome.value, outcome.info["acc"], "pred" in outcome.info) == (1.0, 1, False)
    assert why in outcome.info["left_out"]["pred"]


@given(st.floats(allow_nan=False, allow_infinity=False), st.dictionaries(st.text(), st.integers() | st.text()))
def test_a_score_survives_its_trip_from_the_process(value: float, info: dict[str, Any]) -> None:
    assert from_wire(json.loads(json.dumps(to_wire(FunctionScore(value, info))))) == FunctionScore(value, info)


class FaultyError(Exception):
    def __init__(self, fault: Any) -> None:
        self.fault = fault


class UnwillingError(Exception):
    @property
    def fault(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (SandboxError("starved"), "infra"),
        (FaultyError("infra"), "infra"),
        (FaultyError("policy"), "verifier"),
        (FaultyError([]), "verifier"),
        (UnwillingError(), "verifier"),
        (ValueError(), "verifier"),
    ],
)
def test_an_exception_may_say_that_the_machine_is_at_fault(error: Exception, fault: str) -> None:
    outcome = from_wire(json.loads(json.dumps(to_wire(failed(error)))))
    assert isinstance(outcome, Failed)
    assert outcome.fault == fault


@pytest.mark.parametrize(
    "frame", [{}, {"score": "1", "info": {}}, {"score": float("nan"), "info": {}}, [1], {"score": 1}]
)
def test_what_no_result_is_costs_the_score_and_is_never_one(frame: Any) -> None:
    assert isinstance(from_wire(frame), Failed)


# What is a sample


def test_a_sample_has_verls_four_arguments() -> None:
    text = '{"data_source": "gsm8k", "solution_str": "4", "ground_truth": ["4"], "extra_info": {"index": 1}}'
    assert parse_sample(text) == FunctionArguments(
        data_source="gsm8k", solution_str="4", ground_truth=["4"], extra_info={"index": 1}
    )


@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        "3",
        "{}",
        '{"data_source": "a"}',
        '{"data_source": 1, "solution_str": "b"}',
        '{"data_source": "a", "solution_str": "b", "extra_info": []}',
        '{"data_source": "a", "solution_str": "b", "prompt": "c"}',
    ],
)
def test_anything_else_is_an_invalid_sample(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="sample"):
        parse_sample(text)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nowhere:f", "ModuleNotFoundError"),
        ("rewards:nothing", "the module rewards has no function nothing"),
        ("rewards:not_callable", "it is a int"),
        ("broken:f", "broken.py:3: RuntimeError: no licence"),
        ("interrupted:f", "interrupted.py:3: KeyboardInterrupt: no licence"),
        ("needs_more:f", "needs_more.py:3: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    ],
)
def test_a_function_that_is_not_there_is_named_with_what_is_missing(reference: str, words: str) -> None:
    with pytest.raises(FunctionLoadError, match=f"{reference}.*{words}"):
        load_function(reference)


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "misspelt.py").write_text("x = 1\n\ndef f(:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FunctionLoadError, match=r"cannot load the function misspelt:f: misspelt\.py:3: SyntaxError: "):
        load_function("misspelt:f")


def trl_style(completions: list[Any], solution: list[str], **kwargs: Any) -> list[float]:
    raise AssertionError("never called")


class Rule:
    def compute(self, x: Any) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (trl_style, "missing a required argument: 'completions'"),
        (lambda solution, truth: 1.0, "missing a required argument: 'solution'"),
        (lambda data_source, solution_str: 1.0, "got an unexpected keyword argument 'ground_truth'"),
        (Rule, "got an unexpected keyword argument"),
    ],
)
def test_a_function_with_other_parameters_is_refused_before_the_first_sample(function: Any, said: str) -> None:
    with pytest.raises(FunctionLoadError, match="it cannot be called with data_source, solution_str") as caught:
        check_signature(function, name="f")
    assert said in str(caught.value)


def test_further_arguments_count_too() -> None:
    def strict(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any, level: int) -> float:
        return float(level)

    check_signature(strict, name="strict", further={"level": 2, "ground_truth": 1})
    with pytest.raises(FunctionLoadError, match="missing a required argument: 'level'"):
        check_signature(strict, name="strict")


@given(st.builds(FunctionArguments, data_source=st.text(), solution_str=st.text(), ground_truth=st.text() | st.none()))
def test_a_sample_survives_its_trip_as_text(one: FunctionArguments) -> None:
    assert parse_sample(json.dumps(vars(one))) == one
