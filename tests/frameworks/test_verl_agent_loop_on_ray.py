"""verl's own agent loop manager and workers on Ray, v1's with its TransferQueue: rewards come with what was written."""

import copy
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import omegaconf
import pytest
import ray
import transfer_queue
from support.local_machine import LocalMachine
from support.patience import PATIENCE
from support.reward_functions import expected_score
from support.verl_job import verl_config
from support.verl_rollouts import FakeLlmServerClient, prompts_for_v1, prompts_of, save_policy
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopManager
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from rewardpool_local.process import ENV_PROCESS
from rewardpool_train.advantages import group_advantages

pytestmark = pytest.mark.real
SAMPLES = 200


@pytest.fixture(scope="module")
def config(machine: LocalMachine, function_pool: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What a user configures."""
    environment = {name: value for name, value in machine.environ.items() if os.environ.get(name) != value}
    ray.init(num_cpus=16, include_dashboard=False, runtime_env={"env_vars": environment})
    policy = save_policy(tmp_path_factory.mktemp("tiny-policy"))
    try:
        yield verl_config(
            policy,
            "reward.reward_manager.name=rewardpool",
            f"+reward.pool={function_pool}",
            "actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool",
            "actor_rollout_ref.rollout.agent.num_workers=1",
            "actor_rollout_ref.rollout.name=vllm",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
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
    [worker] = manager.agent_loop_workers
    asked = worker.generate_sequences.remote(rows)
    victim = next(process for process in machine.processes() if "/worker" in process.environ()[ENV_PROCESS])
    victim.kill()
    written = ray.get(asked, timeout=120 * PATIENCE)
    assert written.batch["rm_scores"].sum(dim=-1).tolist() == pytest.approx([expected_score(text) for text in digits])
    assert not victim.is_running()


@pytest.mark.long
def test_v1s_trajectories_come_to_the_replay_buffer_with_their_rewards(config: Any) -> None:
    digits = [f"{number:03d}" for number in range(16)]
    transfer_queue.init(config.transfer_queue)
    try:
        manager = AgentLoopManagerTQ.create(config, FakeLlmServerClient(), reward_loop_worker_handles=nobody_to_ask())
        rows = prompts_for_v1(digits, step=1)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": 1} for _ in digits]
        transfer_queue.kv_batch_put(keys=list(rows["uid"]), partition_id="train", tags=tags)
        manager.generate_sequences(rows)
        buffer = ReplayBuffer("sync", {}, None, "drop", {}, poll_interval=0.2, train_batch_size=16, gen_batch_size=16)
        batch, _ = buffer.sample(global_steps=1, partition_id="train", batch_size=16)
        got = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id="train", select_fields=["rm_scores", "responses"]
        )
    finally:
        transfer_queue.close()
    scores = [float(one.sum()) for one in got["rm_scores"].unbind()]
    texts = ["".join(str(int(token)) for token in one[:-1]) for one in got["responses"].unbind()]
    assert sorted(texts) == digits
    assert scores == pytest.approx([expected_score(text) for text in texts])


@pytest.mark.long  # test_verl_agent_loop.py leaves it out as well, in one process
def test_v1_trains_a_group_without_the_trajectory_that_has_no_score(config: Any) -> None:
    config = copy.deepcopy(config)
    with omegaconf.open_dict(config):
        del config.reward["pool"]
        config.reward.rewardpool = {
            "function": "support.reward_functions:fails_every_fourth_time",
            "run_in": "threads",  # where its calls are counted together
            "on_failure": "skip",
        }
        config.actor_rollout_ref.rollout.n = 4
    digits = [f"{number:03d}" for number in range(8)]
    transfer_queue.init(config.transfer_queue)
    try:
        manager = AgentLoopManagerTQ.create(config, FakeLlmServerClient(), reward_loop_worker_handles=nobody_to_ask())
        rows = prompts_for_v1(digits, step=1)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": 1} for _ in digits]
        transfer_queue.kv_batch_put(keys=list(rows["uid"]), partition_id="train", tags=tags)
        manager.generate_sequences(rows)
        buffer = ReplayBuffer("sync", {}, None, "drop", {}, poll_interval=0.2, train_batch_size=8, gen_batch_size=8)
        batch, _ = buffer.sample(global_steps=1, partition_id="train", batch_size=8)
        got = transfer_queue.kv_batch_get(
            keys=batch.keys, partition_id="train", select_fields=["rm_scores", "response_mask"]
        )
    finally:
        transfer_queue.close()
    assert len(batch.keys) == 8 * 4 * 3 // 4
    groups = [key.split("_")[0] for key in batch.keys]
    tensors = {
        "token_level_rewards": got["rm_scores"].to_padded_tensor(0.0),
        "response_mask": got["response_mask"].to_padded_tensor(0),
    }
    data = DataProto.from_dict(tensors, non_tensors={"uid": np.array(groups, dtype=object)})
    made = compute_advantage_for_multi_trajectories(data, batch.keys, "grpo", config=config.algorithm)
    scores = tensors["token_level_rewards"].sum(dim=-1).tolist()
    for group in set(groups):
        rows_of = [row for row, one in enumerate(groups) if one == group]
        if len(rows_of) == 1:  # to verl a group of one, whose reward is its advantage
            continue
        expected = group_advantages([scores[row] for row in rows_of], scale="group_sample_std")
        assert made.batch["advantages"][rows_of, 0].tolist() == pytest.approx(expected, abs=1e-3)
