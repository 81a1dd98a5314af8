import copy
import datetime
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rewardpool
from rewardpool._rewards import Episode, LazyReward, Rating
from rewardpool._rewards.groups import by_group, groups_of
from rewardpool.errors import ConfigError

CELLS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def written(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    return float(solution_str)


def above_the_mean(ratings: Sequence[Rating]) -> list[float]:
    totals = [rating.total or 0.0 for rating in ratings]
    return [total - sum(totals) / len(totals) for total in totals]


COMPARING = {"function": written, "post_process": above_the_mean}


def test_rows_are_a_group_that_are_equal_in_all_columns() -> None:
    chat = [{"role": "user", "content": "a"}]
    assert groups_of([chat, "a", list(chat), "b"]) == [0, 1, 0, 2]
    assert groups_of(["a"] * 3, [1, 2, 1]) == [0, 1, 0]
    assert groups_of([{"a": 1, "b": 2}, {"b": 2, "a": 1}]) == [0, 0]
    assert groups_of([datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)]) == [0, 1]


def test_what_cannot_be_written_is_of_the_group_of_its_own_object() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert groups_of([endless, endless, 10**5000, []]) == [0, 0, 1, 2]


def test_a_ground_truth_that_cannot_be_written_is_refused_for_its_row() -> None:
    with rewardpool.Reward(written) as reward, pytest.raises(rewardpool.UnscoredError, match="ground_truth") as caught:
        reward(["?", "?"], ["1", "2"], ground_truth=[10**5000, 2])
    assert caught.value.scores == [None, 2.0]


@given(CELLS, CELLS)
def test_a_copy_is_of_the_same_group_and_what_differs_is_not(one: Any, other: Any) -> None:
    assert groups_of([one, copy.deepcopy(one)]) == [0, 0]
    if repr(one) == repr(other):
        return
    assert one == other or groups_of([one, other]) == [0, 1]


@pytest.mark.parametrize(
    "columns",
    [
        {"ground_truth": ["x", "y", "x", "y"]},
        {"extra_info": [{"index": 0}, {"index": 1}, {"index": 0}, {"index": 1}]},
        {"data_source": ["x", "y", "x", "y"]},
        {"groups": ["x", "y", "x", "y"]},
    ],
)
def test_two_problems_of_one_text_are_two_groups(columns: dict[str, Any]) -> None:
    with rewardpool.Reward(COMPARING) as reward:
        assert reward(["?"] * 4, ["1", "5", "3", "5"], **columns) == [-1.0, 0.0, 1.0, 0.0]


def test_groups_that_are_given_win() -> None:
    with rewardpool.Reward(COMPARING) as reward:
        assert reward(["?", "!"], ["1", "3"], ground_truth=[1, 2], groups=[7, 7]) == [-1.0, 1.0]
        with pytest.raises(ValueError, match=r"groups has 1 for 2 responses"):
            reward(["?", "?"], ["1", "3"], groups=[7])


def test_rows_that_are_compared_with_nothing_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with rewardpool.Reward(COMPARING) as reward:
        assert reward(["?", "?"], ["1", "3"], extra_info=[{"n": 0}, {"n": 1}]) == [0.0, 0.0]
    assert "each of these 2 rows is a group of its own" in caplog.text


def test_a_reward_that_compares_responses_refuses_episodes_without_a_group() -> None:
    lazy = LazyReward(COMPARING)
    with pytest.raises(ConfigError, match=r"^reward: compares .* give every row its group"):
        lazy.rate_batch_blocking([Episode(prompt="?", response="1")])
    lazy.close()


def test_each_episode_without_a_group_is_alone() -> None:
    groups = [None, 1, None, 1]
    assert by_group([Episode(prompt="?", response="", group=group) for group in groups]) == [[0], [1, 3], [2]]
