"""The arithmetic of mixtures, by its laws."""

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards.mixture import Deviation, clipped, combined, normalized
from rewardpool._rewards.score_noise import EPSILON, ScoreDtype, epsilon

NUMBERS = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6)
ANY = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(NUMBERS, min_size=1, max_size=20).flatmap(
        lambda values: st.tuples(st.just(values), st.permutations(values))
    )
)
def test_the_order_of_the_parts_does_not_matter(lists: tuple[list[float], list[float]]) -> None:
    for how in ("sum", "product", "gate"):
        assert combined(lists[0], how=how) == combined(lists[1], how=how)


@given(st.lists(st.integers(-10, 10).map(float), max_size=8), st.integers(-10, 10).map(float))
def test_zero_changes_no_sum_and_one_no_product(scores: list[float], other: float) -> None:
    assert combined([*scores, 0.0], how="sum") == combined(scores, how="sum")
    assert combined([*scores, 1.0], how="product") == combined(scores, how="product")
    assert combined([*scores, other], how="sum") == combined(scores, how="sum") + other
    assert combined([*scores, other], how="product") == combined(scores, how="product") * other


@pytest.mark.parametrize("scores", [[1e308, 1e308], [math.inf, -math.inf], [-1e308, -1e308]])
def test_what_is_too_large_for_a_float_is_not_finite(scores: list[float]) -> None:
    assert not math.isfinite(combined(scores, how="sum"))


@given(ANY, ANY, ANY)
def test_clipping_stays_within_the_bounds_and_changes_nothing_inside(value: float, one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    assert low <= clipped(value, (low, high)) <= high
    assert clipped(clipped(value, (low, high)), (low, high)) == clipped(value, (low, high))
    assert not low <= value <= high or clipped(value, (low, high)) == value
    assert clipped(value, None) == value


@given(st.lists(st.floats(-1e3, 1e3).map(lambda value: round(value, 3)), min_size=2, max_size=30))
def test_normalized_scores_have_mean_zero_and_the_deviations_share_and_keep_their_order(values: list[float]) -> None:
    result = normalized(values)
    if min(values) == max(values):
        assert result == [0.0] * len(values)
        return
    assert statistics.fmean(result) == pytest.approx(0, abs=1e-9)
    spread = statistics.pstdev(values)
    assert statistics.pstdev(result) == pytest.approx(spread / (spread + epsilon(values, "float32")))
    order = sorted(range(len(values)), key=values.__getitem__)
    assert all(result[one] <= result[other] for one, other in itertools.pairwise(order))


@given(st.lists(ANY, max_size=10))
def test_normalization_never_makes_what_is_no_number(values: list[float]) -> None:
    assert all(math.isfinite(value) for value in normalized(values))


@pytest.mark.parametrize("deviation", ["population", "sample"])
def test_a_group_is_divided_by_its_deviation_plus_epsilon(deviation: Deviation) -> None:
    spread = {"population": math.sqrt(2 / 3), "sample": 1.0}[deviation] + EPSILON
    assert normalized([1.0, 2.0, 3.0], deviation=deviation) == pytest.approx([-1 / spread, 0.0, 1 / spread])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.0] * 7 + [1.0 + 2 * 2.0**-52], "float32"),  # two steps of a Python float
        ([0.5] * 7 + [0.5 + 2 * 2.0**-24], "float32"),
        ([1e5] * 7 + [1e5 + 2 * 2.0**-7], "float32"),
        ([20.0] * 7 + [20.25], "bfloat16"),
        ([20.0] * 7 + [20.03125], "float16"),
        ([2.0**1000] * 7 + [2.0**1000 + 2.0**948], "float32"),
    ],
)
def test_a_spread_of_two_float_steps_is_none(values: list[float], dtype: ScoreDtype) -> None:
    assert normalized(values, dtype=dtype) == [0.0] * len(values)


def test_a_small_spread_is_damped_by_epsilon() -> None:
    assert normalized([1.0] * 7 + [1.0 + 1e-6])[-1] == pytest.approx(7 / 8 * 1e-6 / EPSILON, rel=1e-2)


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 3.0, 3.0], [5e-324, 0.0]])
def test_a_group_without_differences_is_normalized_to_zeros(values: list[float]) -> None:
    assert normalized(values) == [0.0] * len(values)
