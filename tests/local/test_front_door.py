"""The front door to a real pool: real processes, the real router, a reward function as the engine."""

import asyncio

import pytest
from support.local_machine import POOL, LocalMachine

import rewardpool
from rewardpool_api import names

pytestmark = pytest.mark.real

RESPONSES = ["a", "bb", "ccc"]
PROMPTS = ["How long?"] * 3


@pytest.fixture
async def pool(lasting: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> LocalMachine:
    """A pool that this process finds, too."""
    monkeypatch.setenv(names.ENV_STATE_DIR, lasting.environ[names.ENV_STATE_DIR])
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    await lasting.up()
    return lasting


async def test_a_name_a_url_and_a_mixture_give_the_scores_of_the_pool(pool: LocalMachine) -> None:
    url = str(pool.pool().status.url)
    known = {"type": "Function", "key_file": str(pool.folder.key_file)}
    mixture = {"rewards": [POOL, {"function": lambda solution_str, **_: 10.0 * len(solution_str), "name": "ten"}]}
    for reward, factor in (
        (rewardpool.Reward(POOL, timeout=60), 1),
        (rewardpool.Reward(url, **known), 1),
        (rewardpool.Reward(mixture), 11),
    ):
        with reward:
            assert await asyncio.to_thread(reward, PROMPTS, RESPONSES) == [factor, 2 * factor, 3 * factor]


async def test_what_is_awaited_and_what_is_streamed_has_the_same_scores(pool: LocalMachine) -> None:
    async with rewardpool.Reward(POOL, timeout=60) as reward:
        assert await reward.score("How long?", "four") == 4.0
        rated = {index: rating.total async for index, rating in reward.stream(zip(PROMPTS, RESPONSES, strict=True))}
    assert rated == {0: 1.0, 1: 2.0, 2: 3.0}
