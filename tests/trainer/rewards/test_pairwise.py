"""Win rates within a group: who meets whom, and what the comparisons come to."""

import asyncio
import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_judge import ScriptedJudge

from rewardpool._rewards import Episode
from rewardpool._rewards.judges.pairwise import GroupComparer, pairs_of
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore
from rewardpool.errors import InvalidSampleError, ScoreError

QUALITY = re.compile(r"\[Response (?:A|B) \w+\]\n(-?\d+)")


def by_quality(question: str, _: Any) -> str:
    """A fair judge: responses are numbers, and the larger is better."""
    first, second = (int(number) for number in QUALITY.findall(question))
    return json.dumps({"winner": "tie" if first == second else "A" if first > second else "B"})


def compare(answer: Any, qualities: list[int], **config: Any) -> list[Any]:
    comparer = GroupComparer(ScriptedJudge(answer), JudgeConfig(mode="pairwise", retries=0, **config))
    episodes = [Episode(prompt="?", response=str(quality), id=f"e{quality}") for quality in qualities]
    return asyncio.run(comparer.compare(episodes))


@given(st.integers(1, 40), st.integers(2, 20))
def test_everybody_meets_the_same_number_of_others_and_nobody_twice(members: int, opponents: int) -> None:
    pairs = pairs_of(members, opponents)
    met = Counter(member for pair in pairs for member in pair)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert all(len(set(pair)) == 2 for pair in pairs)
    meetings = members - 1 if members - 1 <= opponents else opponents - opponents % 2
    assert {met[member] for member in range(members)} == {meetings}


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=8))
def test_win_rates_are_shares_of_comparisons_with_a_tie_for_half(qualities: list[int]) -> None:
    def share(quality: int) -> float:
        return (
            sum(quality > other for other in qualities) + (sum(quality == other for other in qualities) - 1) / 2
        ) / (len(qualities) - 1)

    scores = [score.value for score in compare(by_quality, qualities)]
    assert scores == pytest.approx([share(quality) for quality in qualities])
    assert sum(scores) == pytest.approx(len(qualities) / 2)


@given(st.permutations([1, 2, 3, 4, 5, 6]))
def test_the_order_of_a_group_does_not_matter_when_all_meet(qualities: list[int]) -> None:
    scores = dict(zip(qualities, (score.value for score in compare(by_quality, qualities)), strict=True))
    assert scores == {quality: pytest.approx((quality - 1) / 5) for quality in range(1, 7)}


def test_a_judge_that_likes_the_first_place_makes_all_equal() -> None:
    assert [score.value for score in compare(lambda *_: '{"winner": "A"}', [1, 2, 3])] == [0.5] * 3


def test_what_was_said_is_kept_with_each_that_it_is_about() -> None:
    [one, other] = compare(by_quality, [1, 2])
    assert one.info["comparisons"] == other.info["comparisons"] == 1
    assert one.info["words"] == other.info["words"] == ['{"winner": "B"}', '{"winner": "A"}']


def test_one_alone_has_nobody_to_be_compared_with() -> None:
    [alone] = compare(by_quality, [1])
    assert isinstance(alone, InvalidSampleError)


def test_a_comparison_without_an_answer_leaves_both_without_a_score_and_nobody_else() -> None:
    def answer(question: str, sampling: Any) -> str:
        return "hm" if set(QUALITY.findall(question)) == {"1", "2"} else by_quality(question, sampling)

    one, two, three = compare(answer, [1, 2, 3])
    assert (type(one), type(two), type(three)) == (ScoreError, ScoreError, PartScore)
    assert three.value == 1.0
