"""How two scores of the same rows agree."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._files.agreement import AgreementCounter, ScoreAgreement


def compared(*rows: tuple[str, float | None, float | None]) -> ScoreAgreement:
    comparison = AgreementCounter()
    for group, before, now in rows:
        record: dict[str, Any] = {"group": group, "part": "length", "before": before, "components": {"other": now}}
        comparison.add(record)
    return comparison.agreement()


def test_order_is_compared_within_groups_alone() -> None:
    found = compared(("a", 1.0, 10.0), ("a", 2.0, 20.0), ("b", 5.0, 2.0), ("b", 6.0, 1.0), ("c", 9.0, 0.0))
    assert (found.groups, found.pairs, found.same_order, found.kendall) == (2, 2, 1, 0.0)


def test_differences_are_now_minus_before() -> None:
    found = compared(("a", 1.0, 2.0), ("b", 1.0, 0.5), ("c", 1.0, 1.0))
    assert (found.equal, found.max_abs_difference) == (1, 1.0)
    assert found.mean_difference == pytest.approx(1 / 6)
    assert found.mean_abs_difference == pytest.approx(0.5)


def test_a_mean_is_known_where_a_difference_is_larger_than_any_number() -> None:
    found = compared(("a", -1e308, 1e308), ("b", 0.0, 0.0))
    assert (found.mean_difference, found.mean_abs_difference, found.max_abs_difference) == (1e308, 1e308, None)


def test_rows_without_a_score_are_counted_and_not_compared() -> None:
    found = compared(("a", None, 1.0), ("a", 1.0, None), ("a", None, None))
    assert (found.rows, found.both, found.gained, found.lost) == (3, 0, 1, 1)
    assert (found.mean_difference, found.max_abs_difference, found.kendall) == (None, None, None)


def test_the_raw_score_of_the_part_is_compared_and_not_the_total() -> None:
    comparison = AgreementCounter()
    comparison.add(
        {"group": "a", "part": "b", "before": 2.0, "score": 7.0, "components": {"a": 5.0, "b": 2.0}},
    )
    assert comparison.agreement().equal == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-10, 10)), min_size=1))
def test_the_same_scores_agree_wholly_and_their_reverse_not_at_all(rows: list[tuple[str, float]]) -> None:
    same = compared(*((group, score, score) for group, score in rows))
    reverse = compared(*((group, score, -score) for group, score in rows))
    assert same.kendall in (None, 1.0)
    assert reverse.kendall in (None, -1.0)
    assert (same.equal, same.max_abs_difference) == (len(rows), 0.0)


SCORES = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(st.sampled_from("ab"), SCORES, SCORES)))
def test_whatever_the_scores_are_a_difference_is_finite_or_absent(
    rows: list[tuple[str, float | None, float | None]],
) -> None:
    found = compared(*rows)
    for one in (found.mean_difference, found.mean_abs_difference, found.max_abs_difference):
        assert one is None or math.isfinite(one)
