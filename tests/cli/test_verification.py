"""What `rewardpool verify` compares: tolerances by number format, differences, flips of rank."""

import json
import math
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_cli.verification import ScoreComparison, Tolerance, compare, served_dtype

EXACT = Tolerance(max_abs_diff=0.0)


def compared(expected: list[float], outcomes: list[float | str], tolerance: Tolerance = EXACT) -> ScoreComparison:
    return compare([(n + 1, f"text {n}", score) for n, score in enumerate(expected)], outcomes, tolerance)


@pytest.mark.parametrize(
    ("dtype", "score", "steps"),
    [
        ("bfloat16", 9.0, 0.0625),
        ("bfloat16", -15.9, 0.0625),
        ("bfloat16", 16.0, 0.125),
        ("bfloat16", 1.5, 2**-7),
        ("bfloat16", 0.001, 2**-7),
        ("float16", 9.0, 2**-7),
    ],
)
def test_four_steps_of_the_number_format_are_allowed(dtype: str, score: float, steps: float) -> None:
    assert Tolerance(dtype=dtype).at(score) == 4 * steps


@pytest.mark.parametrize(("score", "allowed"), [(0.5, 1e-4), (9.0, 8e-4)])
def test_in_float32_a_ten_thousandth_is_allowed(score: float, allowed: float) -> None:
    assert Tolerance(dtype="float32").at(score) == pytest.approx(allowed)


@pytest.mark.parametrize(
    ("asked", "of_checkpoint", "engine", "served"),
    [
        ("bfloat16", "float32", "vllm", "bfloat16"),
        ("auto", "bfloat16", "vllm", "bfloat16"),
        ("auto", "float32", "vllm", "float16"),
        ("auto", "float32", "sglang", "float16"),
        ("auto", "float32", "transformers", "float32"),
        ("auto", None, "vllm", None),
    ],
)
def test_the_number_format_is_what_the_engine_makes_of_the_checkpoint(
    asked: str, of_checkpoint: str | None, engine: str, served: str | None
) -> None:
    assert served_dtype(asked, of_checkpoint=of_checkpoint, engine=engine) == served


def test_a_pool_that_gives_the_expected_scores_holds() -> None:
    found = compared([1.0, 2.0], [1.00009, 1.9999], Tolerance(dtype="float32"))
    assert (found.holds, found.rank_flips, found.pairs) == (True, 0, 1)
    assert found.max_abs_diff == pytest.approx(1e-4)


def test_one_score_that_is_off_is_the_worst_and_does_not_hold() -> None:
    found = compared([1.0, 2.0, 3.0], [1.0, 2.5, 3.0])
    assert (found.holds, found.worst[0].line, found.max_abs_diff) == (False, 2, 0.5)


def test_a_text_without_a_score_does_not_hold_and_is_no_number() -> None:
    found = compared([1.0, 2.0], ["sample_too_long: it has 9 tokens", 2.0])
    assert (found.holds, found.max_abs_diff, found.worst[0].problem) == (False, 0.0, "sample_too_long: it has 9 tokens")
    assert sum(each.texts for each in found.histogram) == 1
    written = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert (written["holds"], written["unscored"], written["items"][0]["score"]) == (False, 1, None)


def test_a_pool_that_scores_nothing_has_no_difference() -> None:
    found = compared([1.0], ["silence"])
    assert (found.max_abs_diff, found.mean_abs_diff, found.holds) == (None, None, False)


def test_the_histogram_counts_by_powers_of_ten() -> None:
    found = compared([0.0] * 4, [0.0, 2e-3, 3e-3, 40.0])
    counts = {(each.low, each.high): each.texts for each in found.histogram if each.texts}
    assert counts == {(0.0, 1e-7): 1, (1e-3, 1e-2): 2, (1.0, math.inf): 1}


few: Any = st.integers(-3, 3).map(float)


@given(st.lists(st.tuples(few, few), max_size=12))
def test_rank_flips_are_the_pairs_in_the_other_order(scores: list[tuple[float, float]]) -> None:
    found = compared([expected for expected, _ in scores], [score for _, score in scores])
    pairs = [(a, b) for a, b in combinations(scores, 2) if a[0] != b[0]]
    assert found.pairs == len(pairs)
    assert found.rank_flips == sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in pairs)
    assert sum(each.texts for each in found.histogram) == len(scores)
