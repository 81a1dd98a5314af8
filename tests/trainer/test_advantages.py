import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards.score_noise import EPSILON, ScoreDtype, coarsest
from rewardpool_train.advantages import (
    AdvantageScale,
    TokenReward,
    group_advantages,
    has_members,
    is_informative,
    process_advantages,
)

SCORES = st.lists(st.floats(-100, 100), min_size=2, max_size=16)
GAPPY_SCORES = st.lists(st.none() | st.floats(-100, 100), min_size=2, max_size=16)


def test_advantages_are_the_papers_formula() -> None:
    advantages = group_advantages([1.0, 2.0, 3.0])
    spread = math.sqrt(2 / 3) + EPSILON
    assert advantages == pytest.approx([-1 / spread, 0.0, 1 / spread])


def test_without_a_scale_an_advantage_is_the_distance_from_the_mean() -> None:
    assert group_advantages([1.0, None, 4.0], scale="none") == [-1.5, None, 1.5]


@pytest.mark.parametrize(
    ("dtypes", "found"),
    [
        ([], "float32"),
        (["float32", "float16"], "float16"),
        (["float16", "bfloat16"], "bfloat16"),
        (["auto", None], "float32"),
    ],
)
def test_several_pools_are_as_good_as_the_coarsest_that_says_what_it_computes_in(
    dtypes: list[str | None], found: ScoreDtype
) -> None:
    assert coarsest(iter(dtypes)) == found


def test_the_deviation_may_be_that_of_a_sample_as_in_verl() -> None:
    advantages = group_advantages([1.0, 2.0, 3.0], scale="group_sample_std")
    assert advantages == pytest.approx([-1 / (1 + EPSILON), 0.0, 1 / (1 + EPSILON)])
    assert group_advantages([1.0, None], scale="group_sample_std") == [None, None]


@pytest.mark.parametrize(
    ("dtype", "scores", "informative"),
    [
        ("bfloat16", [20.0, 20.125], False),  # neighbours in bfloat16
        ("bfloat16", [-20.0, -20.125], False),
        ("bfloat16", [20.0, 20.5], True),
        ("bfloat16", [0.001, 0.005], False),  # what is left of summands about 1
        ("bfloat16", [0.0, 1.0], True),
        ("float16", [20.0, 20.015625], False),
        ("float16", [20.0, 20.125], True),
        ("float32", [20.0, 20.125], True),
        ("float32", [1e5, 1e5 + 0.0078125], False),
    ],
)
def test_scores_that_differ_by_a_step_of_the_models_numbers_are_equal(
    dtype: ScoreDtype, scores: list[float], informative: bool
) -> None:
    assert is_informative(scores, dtype=dtype) == informative
    advantages = group_advantages(scores, dtype=dtype)
    assert max(map(abs, filter(None, advantages)), default=0.0) < 0.5 or informative


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


def test_a_group_that_teaches_nothing_can_be_left_out() -> None:
    assert group_advantages([1.0, 1.0], only_informative=True) == [None, None]
    assert group_advantages([0.0, 2.0], scale="none", only_informative=True) == [-1.0, 1.0]


@given(SCORES)
def test_advantages_of_a_group_have_zero_mean(scores: list[float]) -> None:
    assert math.fsum(group_advantages(scores)) == pytest.approx(0.0, abs=1e-6)


@given(SCORES)
def test_a_better_score_never_has_a_smaller_advantage(scores: list[float]) -> None:
    ranked = sorted(zip(scores, group_advantages(scores), strict=True))
    advantages = [advantage for _, advantage in ranked]
    assert advantages == sorted(advantages)


def test_an_unscored_response_is_in_no_mean() -> None:
    advantages = group_advantages([1.0, None, 0.0, 0.0], scale="none")
    assert advantages == [pytest.approx(2 / 3), None, pytest.approx(-1 / 3), pytest.approx(-1 / 3)]


@given(GAPPY_SCORES)
def test_an_unscored_response_changes_nothing_for_its_siblings(scores: list[float | None]) -> None:
    known = [score for score in scores if score is not None]
    found = [advantage for advantage in group_advantages(scores) if advantage is not None]
    assert found == (group_advantages(known) if len(known) > 1 else [])


@given(GAPPY_SCORES)
def test_exactly_the_unscored_responses_of_a_group_that_goes_on_have_no_advantage(scores: list[float | None]) -> None:
    if has_members(scores):
        assert [advantage is None for advantage in group_advantages(scores)] == [score is None for score in scores]


@pytest.mark.parametrize(("min_members", "goes_on"), [(2, True), (3, True), (4, False)])
def test_a_group_with_too_few_scores_has_no_advantages(min_members: int, goes_on: bool) -> None:
    scores = [1.0, None, 0.0, 0.5]
    assert has_members(scores, min_members) is goes_on
    assert (group_advantages(scores, min_members=min_members) != [None] * 4) is goes_on
    steps = [None if score is None else [(0, score)] for score in scores]
    assert (process_advantages(steps, [1] * 4, min_members=min_members) != [None] * 4) is goes_on


def test_a_response_without_scored_siblings_has_no_advantage() -> None:
    assert group_advantages([None, 7.0, None]) == [None, None, None]


def test_equal_scores_give_no_advantage_even_with_a_servers_rounding_noise() -> None:
    assert group_advantages([0.5, 0.5 + 1e-7]) == pytest.approx([0.0, 0.0], abs=1e-2)


STEPS = st.lists(st.tuples(st.integers(0, 3), st.floats(-100, 100)), min_size=1, max_size=6)
"""Of a response, by how many tokens each is longer than the step before, and its reward."""


def placed(steps: list[tuple[int, float]]) -> list[TokenReward]:
    """The rewards at the tokens in which the steps end."""
    tokens = [sum(longer for longer, _ in steps[: number + 1]) for number in range(len(steps))]
    return [(token, value) for token, (_, value) in zip(tokens, steps, strict=True)]


def test_a_tokens_advantage_is_the_sum_of_the_normalised_rewards_of_its_step_and_of_those_after() -> None:
    first, second = process_advantages([[(1, 1.0), (2, 3.0)], [(0, 2.0)]], [3, 1], scale="none")
    assert first == [0.0, 0.0, 1.0]  # -1 for the first step, 1 for the second
    assert second == [0.0]
    spread = math.sqrt(2 / 3) + EPSILON
    first, _ = process_advantages([[(1, 1.0), (2, 3.0)], [(0, 2.0)]], [3, 1])
    assert first == pytest.approx([0.0, 0.0, 1 / spread])


def test_two_steps_that_end_in_one_token_both_count_there() -> None:
    first, _ = process_advantages([[(0, 1.0), (0, 4.0), (1, 1.0)], [(0, 2.0)]], [2, 1], scale="none")
    assert first == [0.0, -1.0]


@given(st.lists(st.none() | st.floats(-100, 100), min_size=2, max_size=8), st.sampled_from(["group_std", "none"]))
def test_where_each_response_has_one_step_all_its_tokens_have_the_outcomes_advantage(
    scores: list[float | None], scale: AdvantageScale
) -> None:
    lengths = range(1, len(scores) + 1)
    steps = [None if score is None else [(length - 1, score)] for score, length in zip(scores, lengths, strict=True)]
    outcome = group_advantages(scores, scale=scale)
    expected = [None if one is None else [one] * length for one, length in zip(outcome, lengths, strict=True)]
    assert process_advantages(steps, lengths, scale=scale) == expected


@given(st.lists(STEPS, min_size=2, max_size=6))
def test_from_token_to_token_an_advantage_changes_by_the_normalised_rewards_of_the_steps_that_end(
    given_steps: list[list[tuple[int, float]]],
) -> None:
    steps = [placed(one) for one in given_steps]
    lengths = [one[-1][0] + 1 for one in steps]
    found = process_advantages(steps, lengths)
    normalised = iter(group_advantages([value for one in steps for _, value in one]))
    for one, advantages in zip(steps, found, strict=True):
        assert advantages is not None
        drops = [here - after for here, after in zip(advantages, [*advantages[1:], 0.0], strict=True)]
        expected = [0.0] * len(drops)
        for token, _ in one:
            expected[token] += next(normalised) or 0.0
        assert drops == pytest.approx(expected, abs=1e-9)
    assert sum(advantages[0] for advantages in found if advantages) == pytest.approx(0.0, abs=1e-6)


def test_a_response_without_a_score_has_no_advantage_and_neither_has_its_only_sibling() -> None:
    assert process_advantages([None, [(0, 1.0), (1, 9.0)]], [3, 2]) == [None, None]


def test_steps_that_are_all_equal_are_left_out_where_that_is_asked_for() -> None:
    equal = [[(0, 0.5), (1, 0.5)], [(0, 0.5)]]
    assert process_advantages(equal, [2, 1], only_informative=True) == [None, None]
    assert process_advantages([[(0, 0.2), (1, 0.5)], [(0, 0.5)]], [2, 1], only_informative=True)[1] is not None
