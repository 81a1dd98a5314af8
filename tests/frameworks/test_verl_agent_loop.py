"""verl's own AgentLoopWorker, in this process and unmodified, scores what it wrote without asking a reward worker."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.local_machine import LocalMachine
from support.reward_functions import expected_score
from support.verl_job import batch_of, verl_config
from support.verl_rollouts import FakeLlmServerClient, prompts_of, save_policy
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput, DictConfigWrap, register
from verl.experimental.reward_loop import RewardLoopWorker
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ, agent_loop_tq

from rewardpool._client.threads.shared import shared
from rewardpool.errors import ConfigError
from rewardpool.verl.agent_loop import ScoringAgentLoop
from rewardpool_api import names

pytestmark = pytest.mark.real

MakeWorker = Callable[..., AgentLoopWorker]
MANAGER = "reward.reward_manager.name=rewardpool"
QUIETLY = "+reward.rewardpool.announce=false"
INLINE = "actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool"
ENGINE = "actor_rollout_ref.rollout.name=vllm"  # verl wants one named


class NobodyToAsk:
    """Stands for the reward workers' handles where none must be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("a reward worker was asked")


@register("two_outputs")
class TwoOutputs:
    """An agent loop of a user's own whose trajectories have two outputs."""

    def __init__(self, **_of_verl: Any) -> None:
        pass

    async def run(self, sampling_params: dict[str, Any], **_of_row: Any) -> list[AgentLoopOutput]:
        return [_output([1]), _output([2, 3])]


@register("scored_already")
class ScoredAlready(TwoOutputs):
    """An agent loop of a user's own that scores by itself."""

    async def run(self, sampling_params: dict[str, Any], **_of_row: Any) -> AgentLoopOutput:  # type: ignore[override]
        return _output([1], reward_score=0.25)


class RewardsAll(ScoredAlready):
    """An agent loop of a user's own that a file of verl's names, with an argument of its own."""

    def __init__(self, reward: float, **_of_verl: Any) -> None:
        self._reward = reward

    async def run(self, sampling_params: dict[str, Any], **_of_row: Any) -> AgentLoopOutput:
        return _output([1], reward_score=self._reward)


def _output(response: list[int], **further: Any) -> AgentLoopOutput:
    mask = [1] * len(response)
    return AgentLoopOutput(
        prompt_ids=[1], response_ids=response, response_mask=mask, metrics=AgentLoopMetrics(), **further
    )


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("tiny-policy"))


@pytest.fixture
async def make_worker(
    machine: LocalMachine, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MakeWorker]:
    """Makes a worker of the overrides that a user writes."""
    monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])
    monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))

    def make(*overrides: str) -> AgentLoopWorker:
        config = verl_config(policy, MANAGER, QUIETLY, INLINE, ENGINE, *overrides)
        return AgentLoopWorker(config, FakeLlmServerClient(), reward_loop_worker_handles=[NobodyToAsk()])

    yield make
    await shared().close()


def asked(*digits: str) -> DataProto:
    return DataProto.from_dict(non_tensors=prompts_of(digits))


async def test_what_was_written_is_scored_in_the_workers_own_process(
    make_worker: MakeWorker, function_pool: str
) -> None:
    worker = make_worker(f"+reward.pool={function_pool}")
    written = await worker.generate_sequences(asked("12", "345"))
    assert written.batch["rm_scores"].sum(dim=-1).tolist() == pytest.approx(
        [expected_score("12"), expected_score("345")]
    )
    assert written.meta_info["metrics"][0]["compute_score"] > 0


async def test_the_reward_and_all_beside_it_are_those_of_the_reward_manager(
    make_worker: MakeWorker, function_pool: str, policy: Path
) -> None:
    parts = f"+reward.rewardpool.rewards=[{{pool:{function_pool}}},{{length_penalty:{{max_tokens:8,buffer_tokens:8}}}}]"
    written = await make_worker(parts).generate_sequences(asked("123"))
    manager = RewardLoopWorker(verl_config(policy, MANAGER, QUIETLY, parts))
    [by_manager] = await manager.compute_score_batch(batch_of(["123"]))
    [extra_info] = written.non_tensor_batch["reward_extra_info"]
    assert written.batch["rm_scores"].sum().item() == pytest.approx(by_manager["reward_score"])
    assert extra_info == by_manager["reward_extra_info"]
    assert set(written.meta_info["reward_extra_keys"]) == set(extra_info)


async def test_of_a_trajectory_with_several_outputs_the_last_is_scored(
    make_worker: MakeWorker, function_pool: str
) -> None:
    worker = make_worker(f"+reward.pool={function_pool}", "+reward.rewardpool.agent_loop=two_outputs")
    first, last = await _trajectory(worker)
    assert (first.reward_score, last.reward_score) == (None, expected_score("23"))


async def test_an_agent_loop_that_scored_by_itself_is_left_alone(make_worker: MakeWorker, function_pool: str) -> None:
    worker = make_worker(f"+reward.pool={function_pool}", "+reward.rewardpool.agent_loop=scored_already")
    [output] = await _trajectory(worker)
    assert output.reward_score == 0.25


async def test_an_agent_loop_of_a_config_file_is_made_with_its_own_arguments(
    make_worker: MakeWorker, function_pool: str, tmp_path: Path
) -> None:
    named = f"{RewardsAll.__module__}.{RewardsAll.__qualname__}"
    (tmp_path / "loops.yaml").write_text(f"- {{name: rewards_all, _target_: {named}, reward: 0.5}}")
    in_file = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={tmp_path / 'loops.yaml'}"
    worker = make_worker(f"+reward.pool={function_pool}", "+reward.rewardpool.agent_loop=rewards_all", in_file)
    written = await worker.generate_sequences(asked("12"))
    assert written.batch["rm_scores"].sum().item() == 0.5


async def test_a_trajectory_without_a_score_is_left_out_of_what_v1s_worker_hands_on(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[str] = []

    async def noted(*, keys: list[str], **_: Any) -> None:
        put.extend(keys)

    monkeypatch.setattr(agent_loop_tq.tq, "init", lambda: None)
    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", noted)
    function = "+reward.rewardpool.function=support.reward_functions:fails_on_odd_digits"
    config = verl_config(policy, MANAGER, INLINE, ENGINE, function, "+reward.rewardpool.on_failure=skip")
    worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(
        config, FakeLlmServerClient(), reward_loop_worker_handles=[NobodyToAsk()]
    )
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    for session, digit in enumerate("2347"):
        row = {name: values[0] for name, values in prompts_of([digit]).items()} | {"global_steps": 1, "uid": "a"}
        await worker._run_agent_loop(
            {}, trajectory=trajectory, trace=False, agent_name="rewardpool", session_id=session, **row
        )
    await shared().close()
    assert put == ["a_0_0", "a_2_0"]


async def test_an_agent_loop_that_nobody_registered_is_named(make_worker: MakeWorker, function_pool: str) -> None:
    worker = make_worker(f"+reward.pool={function_pool}", "+reward.rewardpool.agent_loop=tool_agnet")
    with pytest.raises(ConfigError, match=r"tool_agnet.*single_turn_agent, tool_agent"):
        await worker.generate_sequences(asked("12"))


async def _trajectory(worker: AgentLoopWorker) -> list[AgentLoopOutput]:
    """What the agent loop hands to the worker for one row."""
    loop = ScoringAgentLoop(trainer_config=DictConfigWrap(worker.config), tokenizer=worker.tokenizer)
    row = {name: values[0] for name, values in prompts_of(["1"]).items()}
    output = await loop.run({}, **row)
    return output if isinstance(output, list) else [output]
