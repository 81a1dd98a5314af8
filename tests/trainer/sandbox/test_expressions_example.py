"""The checker of examples/expressions."""

import importlib.util
from types import ModuleType

import pytest
from support.fleet import ROOT


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"expressions_{name}", ROOT / "examples" / "expressions" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score_of(answer: str) -> float:
    return example("checker").compute_score("products", answer, 7, {})["score"]


@pytest.mark.parametrize("answer", ["7 * x", "x * 7"])
def test_a_product_that_was_asked_for_is_right(answer: str) -> None:
    assert score_of(answer) == 1.0
    assert example("answers").is_right(answer, 7)


@pytest.mark.parametrize("answer", ["x + 7", "6 * x", *example("answers").HOSTILE])
def test_anything_else_is_wrong(answer: str) -> None:
    assert score_of(answer) == 0.0
    assert not example("answers").is_right(answer, 7)
