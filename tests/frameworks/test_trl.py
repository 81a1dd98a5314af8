"""TRL's own GRPOTrainer, rewarded by a pool of real processes."""

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import psutil
import pytest
import trl
from support import tiny_policy
from support.local_machine import POOL, LocalMachine, machine

import rewardpool.trl
from rewardpool.errors import ConfigError
from rewardpool_api import names

__all__ = ["machine"]

pytestmark = pytest.mark.real

STEPS = 4


def direct(completions: list[Any], **_: Any) -> list[float]:
    """What the pool's function computes, computed here."""
    return [float(len(completion[0]["content"])) for completion in completions]


class Killer:
    """A reward function that kills with -9 while the pool's samples are in flight: a worker, and then the router."""

    __name__ = "killer"

    def __init__(self, machine: LocalMachine) -> None:
        self._victims = {2: machine.worker, 3: machine.router}
        self.calls = 0
        self.killed: list[psutil.Process] = []

    async def __call__(self, completions: list[Any], **_: Any) -> list[float]:
        self.calls += 1
        if victim := self._victims.get(self.calls):
            await asyncio.sleep(0.1)
            self.killed.append(victim())
            self.killed[-1].kill()
        return [0.0] * len(completions)


def trained(folder: Path, reward_funcs: list[Any]) -> list[dict[str, float]]:
    """Train the tiny policy; returns what TRL logged of every step."""
    trainer = trainer_of(folder, reward_funcs)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "rewards/direct/mean" in entry]


def trained_logs(folder: Path, reward_funcs: list[Any]) -> Mapping[str, Any]:
    """Train the tiny policy; returns TRL's table of completions, with each row's rewards and advantage."""
    trainer = trainer_of(folder, reward_funcs)
    trainer.train()
    return trainer._logs


def trainer_of(folder: Path, reward_funcs: list[Any], *, digits: str = "12345678") -> trl.GRPOTrainer:
    """Make a trainer of the tiny policy, whose prompts are these digits."""
    prompts = [[{"role": "user", "content": digit}] for digit in digits]
    data = datasets.Dataset.from_dict({"prompt": prompts, "extra_info": [{"seconds": 0.3}] * len(prompts)})
    arguments = trl.GRPOConfig(
        output_dir=str(folder / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=12,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
    )
    return trl.GRPOTrainer(
        model=tiny_policy.make_policy(seed=0),
        reward_funcs=reward_funcs,
        args=arguments,
        train_dataset=data,
        processing_class=tiny_policy.make_tokenizer(),
    )


async def test_a_policy_trains_though_a_worker_and_the_router_die_and_every_reward_is_the_direct_one(
    machine: LocalMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.up(replicas=2)
    monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])
    monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))
    reward, killer = rewardpool.trl.reward(POOL), Killer(machine)
    try:
        steps = await asyncio.to_thread(trained, machine.home, [reward, direct, killer])
    finally:
        reward.close()
    router = machine.router().pid
    code, said = await machine.run("down")
    assert code == 0, said
    assert (len(steps), killer.calls) == (STEPS, STEPS)
    for step in steps:
        assert step["rewards/length/mean"] == step["rewards/direct/mean"]
        assert step["rewards/length/std"] == step["rewards/direct/std"]
        assert step["length/unscored"] == 0
        assert step["length/seconds"] >= 0.3
    assert [process.is_running() for process in killer.killed] == [False, False]
    assert router != killer.killed[1].pid
    assert not any(math.isnan(step["loss"]) for step in steps)


def fails_on_odd_lengths(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    if len(solution_str) % 2:
        raise ValueError("odd")
    return -3.0 - len(solution_str)


def test_a_row_without_a_reward_is_left_out_of_its_group_by_trl(tmp_path: Path) -> None:
    reward = rewardpool.trl.reward(
        {"function": fails_on_odd_lengths, "run_in": "threads", "name": "direct"}, on_failure="skip"
    )
    logs = trained_logs(tmp_path, [reward])
    rewards, advantages = list(logs["rewards"]["direct"]), list(logs["advantages"])
    assert 0 < sum(map(math.isnan, rewards)) < len(rewards)
    for start in range(0, len(rewards), 4):
        group = list(zip(rewards[start : start + 4], advantages[start : start + 4], strict=True))
        scored = [value for value, _ in group if not math.isnan(value)]
        mean = sum(scored) / len(scored) if scored else 0.0
        assert all(advantage == 0.0 for value, advantage in group if math.isnan(value))
        assert all(advantage * (value - mean) >= 0 for value, advantage in group if not math.isnan(value))
        assert sum(advantage for _, advantage in group) == pytest.approx(0.0, abs=1e-4)


sizes: list[int] = []


def noted(ratings: list[Any]) -> list[float]:
    """Note how many responses are compared."""
    sizes.append(len(ratings))
    return [rating.total for rating in ratings]


def test_the_groups_that_are_compared_are_trls_also_where_problems_are_equal(tmp_path: Path) -> None:
    sizes.clear()
    reward = rewardpool.trl.reward({"function": length_of, "run_in": "threads", "post_process": noted})
    trainer_of(tmp_path, [reward], digits="11111111").train()
    assert sizes == [4, 4] * STEPS
    reward.close()


def length_of(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    return float(len(solution_str))


def test_a_reward_that_may_give_none_is_refused_beside_another(tmp_path: Path) -> None:
    reward = rewardpool.trl.reward({"function": fails_on_odd_lengths, "run_in": "threads"}, on_failure="skip")
    with pytest.raises(ConfigError, match=r"several reward functions \(here 2\)"):
        trained(tmp_path, [reward, direct])


def test_trl_takes_the_functions_for_what_they_are() -> None:
    from trl.trainer import utils

    awaited, plain = rewardpool.trl.reward(POOL), rewardpool.trl.reward(POOL, blocking=True, name="plain")
    assert (utils.is_async_callable(awaited), utils.is_async_callable(plain)) == (True, False)
    assert (utils.get_callable_name(awaited), utils.get_callable_name(plain)) == ("length", "plain")
