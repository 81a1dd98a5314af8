import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool.actor.groups import SMALLEST_SPREAD, GroupBoard, group_advantages, is_informative

SCORES = st.lists(st.floats(-100, 100), min_size=2, max_size=16)
GAPPY_SCORES = st.lists(st.none() | st.floats(-100, 100), min_size=2, max_size=16)


def test_advantages_are_the_papers_formula() -> None:
    advantages = group_advantages([1.0, 2.0, 3.0])
    spread = math.sqrt(2 / 3) + SMALLEST_SPREAD
    assert advantages == pytest.approx([-1 / spread, 0.0, 1 / spread])


def test_without_a_scale_an_advantage_is_the_distance_from_the_mean() -> None:
    assert group_advantages([1.0, None, 4.0], scale="none") == [-1.5, None, 1.5]


@pytest.mark.parametrize(
    ("scores", "informative"),
    [
        ([0.0, 1.0], True),
        ([1.0, 1.0, 1.0], False),
        ([1.0, 1.0 + 1e-7], False),  # noise of the server's batches
        ([1.0, None, 1.0], False),
        ([None, 0.5, 0.7], True),
        ([0.5, None], False),  # nothing to be compared with
        ([None, None], False),
    ],
)
def test_a_group_teaches_something_where_its_scores_differ(scores: list[float | None], informative: bool) -> None:
    assert is_informative(scores) == informative


@given(SCORES)
def test_advantages_of_a_group_have_zero_mean(scores: list[float]) -> None:
    assert math.fsum(group_advantages(scores)) == pytest.approx(0.0, abs=1e-6)


@given(SCORES)
def test_a_better_score_never_has_a_smaller_advantage(scores: list[float]) -> None:
    ranked = sorted(zip(scores, group_advantages(scores), strict=True))
    advantages = [advantage for _, advantage in ranked]
    assert advantages == sorted(advantages)


@given(GAPPY_SCORES)
def test_an_unscored_response_changes_nothing_for_its_siblings(scores: list[float | None]) -> None:
    known = [score for score in scores if score is not None]
    assert [advantage for advantage in group_advantages(scores) if advantage is not None] == group_advantages(known)


@given(GAPPY_SCORES)
def test_exactly_the_unscored_responses_have_no_advantage(scores: list[float | None]) -> None:
    assert [advantage is None for advantage in group_advantages(scores)] == [score is None for score in scores]


def test_a_response_without_scored_siblings_is_neither_good_nor_bad() -> None:
    assert group_advantages([None, 7.0, None]) == [None, 0.0, None]


def test_equal_scores_give_no_advantage_even_with_a_servers_rounding_noise() -> None:
    assert group_advantages([0.5, 0.5 + 1e-7]) == pytest.approx([0.0, 0.0], abs=1e-2)


@given(
    st.lists(SCORES, min_size=1, max_size=5).filter(lambda groups: len({len(group) for group in groups}) == 1),
    st.randoms(),
)
def test_the_order_of_arrival_does_not_change_a_groups_scores(groups: list[list[float]], rng: random.Random) -> None:
    board = GroupBoard(groups=len(groups), size=len(groups[0]))
    arrivals = [(index, member, score) for index, group in enumerate(groups) for member, score in enumerate(group)]
    rng.shuffle(arrivals)
    for index, member, score in arrivals:
        board.put(index, member, score)
    taken = board.take(len(groups))
    assert taken is not None
    assert {group.index: group.scores for group in taken} == dict(enumerate(groups))


def test_a_complete_group_can_go_while_another_waits() -> None:
    board = GroupBoard(groups=2, size=2)
    board.put(0, 0, 1.0)
    board.put(1, 0, 1.0)
    assert board.take(1) is None
    board.put(1, 1, None)
    taken = board.take(1)
    assert taken is not None
    assert [group.index for group in taken] == [1]


def test_in_the_order_of_prompts_an_earlier_group_is_waited_for() -> None:
    board = GroupBoard(groups=2, size=1, order="prompt")
    board.put(1, 0, 1.0)
    assert board.take(1) is None
    board.put(0, 0, 1.0)
    assert [group.index for _ in range(2) for group in board.take(1) or []] == [0, 1]


def test_a_second_outcome_for_the_same_response_is_refused() -> None:
    board = GroupBoard(groups=1, size=2)
    board.put(0, 1, 0.5)
    with pytest.raises(ValueError, match="member 1 of group 0 has its outcome already"):
        board.put(0, 1, 0.6)
