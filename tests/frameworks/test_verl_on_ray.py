"""verl's own reward loop on Ray, unmodified: its manager and workers score through the plugin from a local pool."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from support.fleet import eventually
from support.local_machine import POOL, LocalMachine
from support.patience import PATIENCE
from support.reward_functions import expected_score
from support.verl_job import batch_of, verl_config
from verl.experimental.reward_loop import RewardLoopManager

from rewardpool_api import names
from rewardpool_local.process import ENV_PROCESS
from rewardpool_runtime.state_files import DEMANDS_DIR

pytestmark = pytest.mark.real
NAME = POOL.partition("/")[2]
TRAIN_BATCH, GROUP = 32, 4
JOB = "verl-on-ray"


@pytest.fixture(scope="module")
def reward_loop(machine: LocalMachine, function_pool: str, policy_tokenizer: Path) -> Iterator[RewardLoopManager]:
    """verl's manager with two workers, configured as a user does."""
    environ = environ_of(machine) | {names.ENV_JOB: JOB}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": environ})
    config = verl_config(
        policy_tokenizer,
        "reward.reward_manager.name=rewardpool",
        f"+reward.pool={function_pool}",
        f"data.train_batch_size={TRAIN_BATCH}",
        f"actor_rollout_ref.rollout.n={GROUP}",
    )
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


def test_both_workers_share_what_scored_a_group(reward_loop: RewardLoopManager) -> None:
    reward_loop.compute_rm_score(batch_of(texts(8), uid="shared"))
    claims = ray.get_actor(f"rewardpool_claims_{ray.get_runtime_context().get_job_id()}")
    assert list(ray.get(claims.for_group.remote("shared"))) == [POOL]


async def test_one_worker_announces_what_the_config_says_of_the_whole_job(
    reward_loop: RewardLoopManager, machine: LocalMachine
) -> None:
    reward_loop.compute_rm_score(batch_of(texts(2)))

    async def announced() -> bool:
        demands = [
            json.loads(file.read_text())["demand"] for file in (machine.folder.path / DEMANDS_DIR).glob("*.json")
        ]
        ours = [(one["phase"], one["samples"]) for one in demands if one["job"] == JOB]
        return ours == [("Rollout", TRAIN_BATCH * GROUP)]

    await eventually(announced, what="one job announces its samples")


def test_every_sample_of_a_stream_is_scored_though_a_worker_and_the_router_die(
    reward_loop: RewardLoopManager, machine: LocalMachine
) -> None:
    responses = texts(400)
    batch = batch_of(responses, seconds=0.05)
    workers = reward_loop.reward_loop_worker_handles  # as verl's agent loop asks them, a sample each
    asked = [workers[index % 2].compute_score.remote(batch[index : index + 1]) for index in range(len(batch))]
    ray.wait(asked, num_returns=40)
    victim = next(process for process in machine.processes() if "/worker" in process.environ()[ENV_PROCESS])
    victim.kill()
    ray.wait(asked, num_returns=160)
    machine.router().kill()
    scored = ray.get(asked, timeout=120 * PATIENCE)
    assert [one["reward_score"] for one in scored] == [expected_score(response) for response in responses]
    names_of_info = ("score", "unscored", "fault", "failure", f"component/{NAME}", "said")
    assert {tuple(one["reward_extra_info"]) for one in scored} == {names_of_info}
    assert not victim.is_running()
