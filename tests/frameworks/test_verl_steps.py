"""Rewards of steps through verl's own classes: an agent loop worker of v1, and what its trainer makes advantages of."""

import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
import torch
from aiohttp import web
from support.byte_tokenizer import ROLES, TEMPLATE, byte_tokenizer
from support.fake_worker import FakeWorker
from support.verl_job import batch_of, verl_config
from support.verl_rollouts import FakeLlmServerClient, prompts_of, save_policy
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopWorker
from verl.experimental.reward_loop import RewardLoopWorker
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_adv_estimator_fn
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ, agent_loop_tq
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from rewardpool._client.threads.shared import shared
from rewardpool.errors import ConfigError
from rewardpool.verl.advantages import NAME
from rewardpool_train.advantages import process_advantages

STEP = "<|step|>"
MakeConfig = Callable[..., Any]
VALUES = [0.9, 0.0, 0.25]
"""Of the steps of each response, in their order."""


async def of_its_steps(request: web.Request) -> web.Response:
    """A fake process reward model: as many values as the sample has step tokens; what has none gets one number."""
    given = (await request.json())["input"]
    if isinstance(given[0], str):
        return web.json_response({"data": [{"index": at, "embedding": [1.0]} for at in range(len(given))]})
    values = VALUES[
        : given.count(byte_tokenizer(template=TEMPLATE, controls=[*ROLES, STEP]).convert_tokens_to_ids(STEP))
    ]
    return web.json_response({"data": [{"index": 0, "embedding": [min(values)], "steps": values}]})


@pytest.fixture
async def make_config(tmp_path: Path) -> AsyncIterator[MakeConfig]:
    """Makes the config of a user whose policy writes digits, of which 9 stands between steps."""
    byte_tokenizer(template=TEMPLATE, controls=[*ROLES, STEP]).save_pretrained(tmp_path / "prm")
    policy = save_policy(tmp_path / "policy")
    async with FakeWorker(*[of_its_steps] * 20) as worker:
        reward = {
            "url": worker.url,
            "type": "Discriminative",
            "tokenizer": tmp_path / "prm",
            "supervision": "process",
            "steps": f"{{separator:'9',token:'{STEP}'}}",
            "announce": "false",
        }
        yield lambda *overrides: verl_config(
            policy,
            "reward.reward_manager.name=rewardpool",
            "actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool",
            "actor_rollout_ref.rollout.name=vllm",
            f"algorithm.adv_estimator={NAME}",
            *(f"+reward.rewardpool.{name}={value}" for name, value in reward.items()),
            *overrides,
        )
        await shared().close()


async def test_of_v1s_trajectories_each_step_has_its_reward_at_its_token_and_verl_makes_advantages_of_them(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[Any] = []

    async def noted(*, keys: Any, fields: Any, tags: Any, partition_id: str) -> None:
        put.append(fields)

    monkeypatch.setattr(agent_loop_tq.tq, "init", lambda: None)
    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", noted)
    config = make_config()
    worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(
        config, FakeLlmServerClient(), reward_loop_worker_handles=[object()]
    )
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    for session, digits in enumerate(["19729", "123"]):  # steps "1", "72" with the token that ends all; and "123"
        row = {name: values[0] for name, values in prompts_of([digits]).items()} | {"global_steps": 1}
        await worker._run_agent_loop(
            {}, trajectory=trajectory, trace=False, agent_name="rewardpool", session_id=session, **row
        )
    first, second = (fields["rm_scores"][0] for fields in put)
    assert first.tolist() == pytest.approx([0.9, 0, 0, 0, 0, 1e-30])
    assert first[-1] != 0  # a step whose reward is 0 is a step
    assert second.tolist() == pytest.approx([0, 0, 0, 0.9])
    extra_info = put[0]["extra_fields"][0]["reward_extra_info"]
    assert (extra_info["score"], extra_info["said"]) == (0.0, '{"pool": {"steps": [0.9, 0.0]}}')

    rows = torch.nn.utils.rnn.pad_sequence([first, second], batch_first=True)
    masks = torch.nn.utils.rnn.pad_sequence([fields["response_mask"][0] for fields in put], batch_first=True)
    data = DataProto.from_dict(
        {"token_level_rewards": rows, "response_mask": masks}, non_tensors={"uid": np.array(["a", "a"], dtype=object)}
    )
    made = compute_advantage_for_multi_trajectories(
        data, ["a_0_0", "a_1_0"], config.algorithm.adv_estimator, config=config.algorithm
    )
    expected = process_advantages([[(0, 0.9), (5, 0.0)], [(3, 0.9)]], [6, 4], scale="group_sample_std")
    assert made.batch["advantages"][0].tolist() == pytest.approx(expected[0], abs=1e-3)
    assert made.batch["advantages"][1].tolist() == pytest.approx([*(expected[1] or []), 0, 0], abs=1e-3)


async def test_a_worker_that_takes_one_number_a_trajectory_fails_with_words(make_config: MakeConfig) -> None:
    worker = AgentLoopWorker(make_config(), FakeLlmServerClient(), reward_loop_worker_handles=[object()])
    with pytest.raises(pydantic.ValidationError, match=r"takes trainer\.use_v1=True"):
        await worker.generate_sequences(DataProto.from_dict(non_tensors=prompts_of(["19729"])))


async def test_a_sample_that_comes_to_a_reward_worker_does_not_lose_the_rewards_of_its_steps(
    make_config: MakeConfig,
) -> None:
    worker = RewardLoopWorker(make_config())
    with pytest.raises(ConfigError, match=r"reward\.rewardpool\.supervision: must be outcome where .* agent_name"):
        await worker.compute_score(batch_of(["192"]))


@pytest.mark.parametrize("by_deviation", [True, False])
def test_with_one_step_a_response_advantages_are_those_of_verls_grpo(by_deviation: bool) -> None:
    rewards = torch.zeros(5, 4)
    ends, index = [3, 2, 3, 0, 1], np.array(["a", "a", "a", "b", "c"], dtype=object)
    for row, (end, value) in enumerate(zip(ends, [0.5, -1.0, 2.0, 0.75, 1e-30], strict=True)):
        rewards[row, end] = value
    mask = (torch.arange(4) <= torch.tensor(ends).unsqueeze(1)).float()
    given = {"token_level_rewards": rewards, "response_mask": mask, "index": index}
    ours, _ = get_adv_estimator_fn(NAME)(**given, config={"norm_adv_by_std_in_grpo": by_deviation})
    theirs, _ = compute_grpo_outcome_advantage(**given, norm_adv_by_std_in_grpo=by_deviation)
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert not math.isnan(ours.sum().item())


def test_plain_rewards_of_an_agent_loop_give_verls_advantages_also_where_some_are_zero() -> None:
    rewards = torch.zeros(8, 3)
    rewards[:2, 2] = 1.0  # the other two of the group have 0
    rewards[4, 1] = 0.5
    mask = torch.tensor([[1.0, 1, 1]] * 4 + [[1.0, 1, 0]] * 4)
    index = np.array(["a"] * 4 + ["b"] * 2 + ["c"] * 2, dtype=object)
    given = {"token_level_rewards": rewards, "response_mask": mask, "index": index}
    ours, _ = get_adv_estimator_fn(NAME)(**given, config=None)
    theirs, _ = compute_grpo_outcome_advantage(**given)
    assert ours[:4, 0].tolist() == pytest.approx([0.866, 0.866, -0.866, -0.866], abs=1e-3)
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_response_without_tokens_is_compared_with_nothing() -> None:
    advantages, _ = get_adv_estimator_fn(NAME)(
        token_level_rewards=torch.tensor([[0.0, 0.5], [0.0, 0.0]]),
        response_mask=torch.tensor([[1.0, 1.0], [0.0, 0.0]]),
        index=["a", "a"],
        config=None,
    )
    assert advantages.tolist() == [[pytest.approx(0.5)] * 2, [0.0, 0.0]]
