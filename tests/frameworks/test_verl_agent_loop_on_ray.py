"""verl's own agent loop manager and workers on Ray: rewards come with what was written."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from support.local_machine import LocalMachine
from support.reward_functions import expected_score
from support.verl_job import verl_config
from support.verl_rollouts import FakeLlmServerClient, prompts_of, save_policy
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopManager

from rewardpool_operator.local.process import ENV_PROCESS

pytestmark = pytest.mark.real
SAMPLES = 200


@pytest.fixture(scope="module")
def config(machine: LocalMachine, function_pool: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What a user configures, on a Ray of two workers."""
    environment = {name: value for name, value in machine.environ.items() if os.environ.get(name) != value}
    ray.init(num_cpus=16, include_dashboard=False, runtime_env={"env_vars": environment})
    policy = save_policy(tmp_path_factory.mktemp("tiny-policy"))
    try:
        yield verl_config(
            policy,
            "reward.reward_manager.name=rewardpool",
            f"+reward.reward_pool={function_pool}",
            "actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool",
            "actor_rollout_ref.rollout.agent.num_workers=2",
            "actor_rollout_ref.rollout.name=vllm",
        )
    finally:
        ray.shutdown()


def nobody_to_ask() -> list[Any]:
    """What verl takes for reward workers, and would fail on if it asked one."""
    return [object()]


def test_every_trajectory_has_its_reward_though_a_worker_is_killed(config: Any, machine: LocalMachine) -> None:
    digits = [f"{number:04d}" for number in range(SAMPLES)]
    manager = AgentLoopManager.create(config, FakeLlmServerClient(), reward_loop_worker_handles=nobody_to_ask())
    rows = DataProto.from_dict(non_tensors=prompts_of(digits, seconds=0.5))
    chunks = rows.chunk(2)
    asked = [
        worker.generate_sequences.remote(chunk)
        for worker, chunk in zip(manager.agent_loop_workers, chunks, strict=True)
    ]
    victim = next(process for process in machine.processes() if "/worker" in process.environ()[ENV_PROCESS])
    victim.kill()
    written = DataProto.concat(ray.get(asked, timeout=120))
    assert written.batch["rm_scores"].sum(dim=-1).tolist() == pytest.approx([expected_score(text) for text in digits])
    assert not victim.is_running()
