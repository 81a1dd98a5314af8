from typing import Any

import pytest

from rewardpool.errors import ConfigError
from rewardpool.verl.settings import read_settings


def test_one_key_is_enough() -> None:
    assert read_settings({"reward": {"reward_pool": "rl/skywork"}}).spec == {"reward_pool": "rl/skywork"}


def test_without_a_pool_the_environment_is_left_to_name_one() -> None:
    assert read_settings({"reward": {}}).spec == {}


def test_further_fields_stand_in_a_mapping_beside_the_pool() -> None:
    reward = {"reward_pool": "rl/skywork", "rewardpool": {"deadline_seconds": 5}}
    assert read_settings({"reward": reward}).spec == {"reward_pool": "rl/skywork", "deadline_seconds": 5}


def test_the_burst_is_known_from_the_batch_and_the_group() -> None:
    config = {
        "reward": {"reward_pool": "rl/skywork", "num_workers": 8},
        "data": {"train_batch_size": 256, "max_response_length": 1024},
        "actor_rollout_ref": {"rollout": {"n": 16}},
    }
    settings = read_settings(config)
    assert (settings.samples, settings.workers, settings.max_response_tokens) == (4096, 8, 1024)


def test_a_trainer_without_batches_does_not_say_how_many_samples_come() -> None:
    config = {"reward": {"reward_pool": "rl/skywork"}, "data": {"train_batch_size": 0}}
    assert read_settings(config).samples is None


def test_a_function_of_the_users_own_may_have_the_tokenizer_named() -> None:
    reward = {
        "reward_pool": "rl/judge",
        "rewardpool": {"tokenizer": "org/judge"},
        "custom_reward_function": {"path": "judge.py"},
    }
    assert read_settings({"reward": reward}).calls_function


FUNCTION = {"path": "judge.py"}
MIXTURE = [{"pool": "rl/skywork"}, {"function": "rules:short", "on_failure": "skip"}]


@pytest.mark.parametrize(
    ("reward", "field"),
    [
        ({"reward_pool": "skywork"}, "reward.reward_pool"),
        ({"reward_pool": "rl/skywork", "rewardpool": "rl/other"}, "reward.rewardpool"),
        ({"reward_pool": "rl/skywork", "rewardpool": {"rewards": MIXTURE}}, "reward.rewardpool.rewards"),
        ({"reward_pool": "rl/skywork", "rewardpool": {"dead_line": 1}}, "reward.rewardpool.dead_line"),
        ({"reward_pool": "rl/skywork", "rewardpool": {"on_failure": "skip"}}, "reward.rewardpool.on_failure"),
        ({"rewardpool": {"rewards": MIXTURE}}, "reward.rewardpool.rewards[1].on_failure"),
        (
            {"reward_pool": "rl/skywork", "rewardpool": {"weight": 2}, "custom_reward_function": FUNCTION},
            "reward.rewardpool.weight",
        ),
        (
            {"rewardpool": {"on_failure": {"constant": 0}}, "custom_reward_function": FUNCTION},
            "reward.rewardpool.on_failure",
        ),
        ({"reward_pool": "rl/skywork", "reward_model": {"enable": True}}, "reward.reward_model.enable"),
    ],
)
def test_a_wrong_key_is_named_by_its_path(reward: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings({"reward": reward})
    assert caught.value.field == field
