"""Judges on a real vLLM, through both real routers: what is asked of the engine arrives there, and holds it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.fleet import FLAVORS, Fleet
from support.vllm_server import VllmServer

from rewardpool._rewards import Episode, Rating, open_reward
from rewardpool.errors import SampleTooLongError
from rewardpool_api.pool import RouterFlavor

pytestmark = pytest.mark.real

EPISODES = [Episode(prompt="Rate?", response=f"word {number}", id=f"e{number}") for number in range(8)]


async def rate(
    server: VllmServer, folder: Path, judge: dict[str, Any], *, flavor: RouterFlavor, episodes: list[Episode] = EPISODES
) -> list[Rating]:
    name = server.served_name
    async with Fleet(folder, workers=0, others=[server.url], key=server.key, flavor=flavor, served_name=name) as fleet:
        spec = {
            "url": fleet.router.url,
            "key_file": str(fleet.key_file),
            "served_name": name,
            "type": "Generative",
            "judge": {"prompt": "{response}", "temperature": 1.0, "retries": 0, **judge},
        }
        async with open_reward(spec) as reward:
            if reward.needs_group:
                return await reward.rate_group(episodes)
            return list(await asyncio.gather(*map(reward.rate, episodes)))


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize(
    "judge",
    [
        {"reasoning_characters": 0},
        {"output": "choice"},
        {"output": "choice", "labels": {"correct": 1, "wrong": 0}},
    ],
    ids=["json_schema", "choice of numbers", "choice of labels"],
)
async def test_a_model_that_babbles_answers_every_question_in_form(
    judge_server: VllmServer, tmp_path: Path, judge: dict[str, Any], flavor: RouterFlavor
) -> None:
    ratings = await rate(judge_server, tmp_path, judge, flavor=flavor)
    scores = {rating.total for rating in ratings}
    assert scores <= ({0.0, 1.0} if "labels" in judge else {float(score) for score in range(1, 11)})
    assert [rating.info["pool"]["requests"] for rating in ratings] == [1] * len(EPISODES)


async def test_reasons_come_before_the_score(judge_server: VllmServer, tmp_path: Path) -> None:
    [rating, *_] = await rate(judge_server, tmp_path, {"reasoning_characters": 60}, flavor="sglang-router")
    [words] = rating.info["pool"]["words"]
    assert words.startswith('{"reasoning":')
    assert words.endswith(f'"score":{rating.total:.0f}}}')


async def test_the_same_seed_gives_the_same_votes_and_another_seed_others(
    judge_server: VllmServer, tmp_path: Path
) -> None:
    async def votes(seed: int) -> list[Any]:
        judge = {"output": "choice", "votes": 5, "seed": seed}
        ratings = await rate(judge_server, tmp_path, judge, flavor="sglang-router")
        return [rating.info["pool"]["votes"] for rating in ratings]

    first, again, other = await votes(1), await votes(1), await votes(1000)
    assert first == again != other
    assert any(len(set(some)) > 1 for some in first)


async def test_a_group_is_judged_in_pairs_and_its_win_rates_add_up(judge_server: VllmServer, tmp_path: Path) -> None:
    judge = {"mode": "pairwise", "output": "choice", "opponents": 4, "prompt": "{response_a}|{response_b}"}
    ratings = await rate(judge_server, tmp_path, judge, flavor="sglang-router")
    assert sum(rating.total or 0.0 for rating in ratings) == pytest.approx(len(EPISODES) / 2)
    assert [rating.info["pool"]["comparisons"] for rating in ratings] == [4] * len(EPISODES)


async def test_a_question_that_is_too_long_is_named_with_both_lengths(judge_server: VllmServer, tmp_path: Path) -> None:
    long = [Episode(prompt="?", response="x" * 1200, id="long")]
    with pytest.raises(SampleTooLongError, match="sample long: has 1203 tokens and the model takes at most 1024"):
        await rate(judge_server, tmp_path, {}, flavor="sglang-router", episodes=long)
