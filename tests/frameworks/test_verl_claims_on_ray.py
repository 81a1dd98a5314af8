"""verl's default, several reward workers: a group's trajectories go to any of them, and one revision scores it."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import ray
from support.revisions import Workers, plays, served
from support.verl_job import batch_of, verl_config
from verl.experimental.reward_loop import RewardLoopManager

from rewardpool.errors import PoolError

pytestmark = [pytest.mark.real, pytest.mark.long]
GROUPS, SIZE = 42, 4


@pytest.fixture
async def job(policy_tokenizer: Path) -> AsyncIterator[tuple[Workers, list[Any]]]:
    """The workers of a pool, and verl's reward workers, two of them."""
    workers = Workers("a")
    async with served(workers) as url:
        settings = f"{{url:'{url}',type:Function,batch:1,timeout:60,announce:false}}"
        config = verl_config(
            policy_tokenizer, "reward.reward_manager.name=rewardpool", f"+reward.rewardpool={settings}"
        )
        await asyncio.to_thread(ray.init, num_cpus=2, include_dashboard=False)
        try:
            yield workers, (await asyncio.to_thread(RewardLoopManager, config)).reward_loop_workers
        finally:
            ray.shutdown()


async def test_no_group_is_split_between_two_reward_workers_in_a_rollout_and_back(
    job: tuple[Workers, list[Any]],
) -> None:
    workers, reward_workers = job
    chance = random.Random(7)
    scores: list[list[float]] = []
    for number, revisions in enumerate(plays(GROUPS)):
        batch = batch_of([f"{number:02d}{member}" for member in range(SIZE)], uid=f"group-{number}")
        members = [
            chance.choice(reward_workers).compute_score.remote(batch[member : member + 1]) for member in range(SIZE)
        ]
        await asyncio.wait([asyncio.ensure_future(member_of(one)) for one in members[:1]], timeout=0.002)
        workers.revisions = chance.sample(revisions, len(revisions))  # while the group is on its way
        outcomes = await asyncio.gather(*map(member_of, members), return_exceptions=True)
        scores.append([one["reward_score"] for one in outcomes if not isinstance(one, BaseException)])
    assert [group for group in scores if len(set(group)) > 1] == []
    assert {score for group in scores for score in group} == {1.0, 2.0}
    assert sum(map(len, scores)) >= 0.9 * GROUPS * SIZE  # but those whose revision was gone

    claims = ray.get_actor(f"rewardpool_claims_{ray.get_runtime_context().get_job_id()}")
    ray.kill(claims)
    with pytest.raises(PoolError, match=r"has died.*one_revision=false"):
        await reward_workers[0].compute_score.remote(batch_of(["7"], uid="after"))


async def member_of(reference: Any) -> Any:
    return await reference
