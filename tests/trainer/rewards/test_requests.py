"""How many requests the responses to a prompt come to."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted_judge import ScriptedJudge

from rewardpool._rewards import Episode
from rewardpool._rewards.judges.pairwise import GroupComparer
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.requests import Asked, requests_by_pool, requests_of


@pytest.mark.parametrize(
    ("judge", "members", "requests"),
    [
        ({}, 8, 8),
        ({"votes": 3}, 8, 24),
        ({"mode": "pairwise", "opponents": 4}, 8, 8 * 4),  # 16 pairs, in both orders
        ({"mode": "pairwise"}, 4, 4 * 3),
        ({"mode": "pairwise", "opponents": 4, "votes": 2}, 8, 8 * 4 * 2),
        ({"mode": "pairwise", "against": "reference"}, 8, 16),
        ({"mode": "listwise"}, 16, 2),
        ({"mode": "listwise", "together": 16, "votes": 16}, 16, 16),
        ({"mode": "pairwise"}, 1, 0),  # there is nothing to compare it with
    ],
)
def test_a_judge_is_asked_by_pairs_tables_and_votes(judge: dict[str, Any], members: int, requests: int) -> None:
    assert requests_of(JudgeConfig.model_validate(judge), members) == requests


@given(st.integers(1, 20), st.integers(2, 20), st.integers(1, 4))
def test_pairs_never_cost_more_than_each_response_meeting_all_its_opponents(
    members: int, opponents: int, votes: int
) -> None:
    judge = JudgeConfig(mode="pairwise", opponents=opponents, votes=votes)
    assert requests_of(judge, members) <= members * opponents * votes


@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_a_group_is_compared_with_just_as_many_requests(members: int, opponents: int, votes: int) -> None:
    pool = ScriptedJudge(lambda *_: '{"winner": "tie"}')
    judge = JudgeConfig(mode="pairwise", opponents=opponents, votes=votes)
    episodes = [Episode(prompt="?", response=str(member)) for member in range(members)]
    asyncio.run(GroupComparer(pool, judge).compare(episodes))
    assert len(pool.asked) == requests_of(judge, members)


def test_parts_of_one_pool_and_a_judges_meta_reward_model_add_up() -> None:
    judge = JudgeConfig(votes=4)
    asked = [Asked("rl/judge", judge), Asked("rl/meta", judge), Asked("rl/meta", JudgeConfig())]
    assert requests_by_pool(asked, 8) == {"rl/judge": 32, "rl/meta": 32 + 8}
