"""Accuracy by subset: a made set of pairs, and counts that always add up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._files.accuracy import Accuracy

SCORES = st.none() | st.sampled_from([-1.0, 0.0, 0.5, 1.0])


def pair(chosen: float | None, rejected: float | None, **carried: Any) -> dict[str, Any]:
    return {"row": 0, **carried, "chosen": {"score": chosen}, "rejected": {"score": rejected}}


def counted(*records: dict[str, Any]) -> Accuracy:
    accuracy = Accuracy()
    for record in records:
        accuracy.add(record)
    return accuracy


def test_a_pair_is_right_where_the_chosen_answer_has_the_higher_score() -> None:
    accuracy = counted(
        pair(2.0, 1.0, subset="chat"),
        pair(1.0, 2.0, subset="chat"),
        pair(1.0, 0.0, subset="safety"),
        pair(1.0, 0.0, subset="safety"),
    )
    assert {name: tally.accuracy for name, tally in accuracy.subsets.items()} == {"chat": 0.5, "safety": 1.0}
    assert (accuracy.all.accuracy, accuracy.mean) == (0.75, 0.75)


def test_a_tie_is_not_right_and_a_pair_without_a_score_says_nothing() -> None:
    tally = counted(pair(1.0, 1.0), pair(1.0, 0.0), pair(None, 0.0), pair(1.0, None)).all
    assert (tally.right, tally.ties, tally.unscored, tally.accuracy) == (1, 1, 2, 0.5)


def test_of_pairs_without_scores_the_accuracy_is_not_known() -> None:
    accuracy = counted(pair(None, None, subset="a"), pair(1.0, 0.0, subset="b"))
    assert (accuracy.subsets["a"].accuracy, accuracy.mean, accuracy.all.accuracy) == (None, None, 1.0)


@given(st.lists(st.tuples(st.sampled_from("abc"), SCORES, SCORES)))
def test_every_pair_is_counted_once(pairs: list[tuple[str, float | None, float | None]]) -> None:
    accuracy = counted(*(pair(chosen, rejected, subset=subset) for subset, chosen, rejected in pairs))
    assert accuracy.all.pairs == sum(tally.pairs for tally in accuracy.subsets.values()) == len(pairs)
    assert accuracy.all.right == sum(
        chosen is not None and rejected is not None and chosen > rejected for _, chosen, rejected in pairs
    )


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_mirrored_set_has_the_other_accuracy(mirrored: bool) -> None:
    pairs = [(2.0, 1.0), (3.0, 1.0), (0.0, 1.0)]
    records = [pair(*(reversed(one) if mirrored else one)) for one in pairs]
    assert counted(*records).all.accuracy == pytest.approx(1 / 3 if mirrored else 2 / 3)
