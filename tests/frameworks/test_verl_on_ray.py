"""verl's own reward loop on Ray, unmodified: its manager and workers score through the plugin from a local pool."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from support.local_machine import POOL, LocalMachine
from support.reward_functions import expected_score
from support.verl_job import batch_of, verl_config
from verl.experimental.reward_loop import RewardLoopManager

pytestmark = pytest.mark.real
NAME = POOL.partition("/")[2]


@pytest.fixture(scope="module")
def pool(machine: LocalMachine) -> str:
    """A pool of two workers."""
    model = {"source": "python://support.reward_functions:compute_score", "type": "Function"}
    asyncio.run(machine.up(model=model, replicas=2))
    return POOL


@pytest.fixture(scope="module")
def reward_loop(machine: LocalMachine, pool: str, policy_tokenizer: Path) -> Iterator[RewardLoopManager]:
    """verl's manager with two workers, configured as a user does."""
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": environ_of(machine)})
    config = verl_config(policy_tokenizer, "reward.reward_manager.name=rewardpool", f"+reward.reward_pool={pool}")
    try:
        yield RewardLoopManager(config)
    finally:
        ray.shutdown()


def environ_of(machine: LocalMachine) -> dict[str, str]:
    return {name: value for name, value in machine.environ.items() if os.environ.get(name) != value}


def texts(count: int) -> list[str]:
    return [f"{number:04d}" for number in range(count)]


def test_a_batch_is_scored_through_the_pool(reward_loop: RewardLoopManager) -> None:
    responses = texts(101)  # which two workers cannot share evenly
    scored = reward_loop.compute_rm_score(batch_of(responses))
    expected = [expected_score(response) for response in responses]
    assert scored.batch["rm_scores"].sum(dim=-1).tolist() == pytest.approx(expected, abs=1e-6)
    assert scored.batch["rm_scores"][:, 4].tolist() == pytest.approx(expected, abs=1e-6)  # at the last token
    extra: dict[str, Any] = scored.non_tensor_batch
    assert extra[f"component/{NAME}"].tolist() == pytest.approx(expected)
    assert set(extra["unscored"]) == {0.0}
