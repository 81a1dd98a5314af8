"""A mixture on a real router with real workers, one of which is killed under way: every total is what it has to be."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.fleet import Fleet
from support.reward_functions import expected_score

from rewardpool._rewards import Episode, Rating, open_reward

pytestmark = pytest.mark.real

EPISODES = [
    Episode(
        prompt="?", response=f"answer {number}", id=f"e{number}", extra_info={"seconds": 0.02}, response_tokens=number
    )
    for number in range(200)
]


def length(solution_str: str, **_: Any) -> float:
    return float(len(solution_str))


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with Fleet(tmp_path, workers=2) as running:
        yield running


async def test_every_episode_of_a_mixture_is_rated_right_while_a_worker_dies(fleet: Fleet) -> None:
    spec = {
        "rewards": [
            {
                "url": fleet.router.url,
                "key_file": str(fleet.key_file),
                "type": "Function",
                "name": "pool",
                "weight": 2.0,
            },
            {"function": length, "clip": [0, 9]},
            {"length_penalty": {"max_tokens": 200, "buffer_tokens": 100}},
        ],
    }

    async with open_reward(spec) as reward:
        rated = itertools.count()

        async def rate(episode: Episode) -> Rating:
            rating = await reward.rate(episode)
            if next(rated) == 20:
                fleet.workers[0].kill()
            return rating

        ratings = await asyncio.gather(*map(rate, EPISODES))
        [report] = [pool.report() for pool in reward.pools.values()]

    assert report.scored == len(EPISODES)
    for number, (episode, rating) in enumerate(zip(EPISODES, ratings, strict=True)):
        scores = expected_score(episode.response), float(len(episode.response)), min(0.0, (100 - number) / 100)
        assert tuple(rating.components.values()) == pytest.approx(scores)
        assert rating.total == pytest.approx(2 * scores[0] + min(scores[1], 9) + scores[2])
