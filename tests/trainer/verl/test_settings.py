from typing import Any

import pytest

from rewardpool.errors import ConfigError
from rewardpool.verl.settings import read_settings


def test_one_key_is_enough() -> None:
    assert read_settings({"reward": {"pool": "rl/skywork"}}).spec == {"pool": "rl/skywork"}


def test_without_a_pool_the_environment_is_left_to_name_one() -> None:
    assert read_settings({"reward": {}}).spec == {}


def test_further_fields_stand_in_a_mapping_beside_the_pool() -> None:
    reward = {"pool": "rl/skywork", "rewardpool": {"timeout": 5}}
    assert read_settings({"reward": reward}).spec == {"pool": "rl/skywork", "timeout": 5}


def test_the_burst_is_known_from_the_batch_and_the_group() -> None:
    config = {
        "reward": {"pool": "rl/skywork", "num_workers": 8},
        "data": {"train_batch_size": 256, "max_response_length": 1024},
        "actor_rollout_ref": {"rollout": {"n": 16}},
    }
    settings = read_settings(config)
    assert (settings.samples, settings.workers, settings.max_response_tokens) == (4096, 8, 1024)


def test_a_trainer_without_batches_does_not_say_how_many_samples_come() -> None:
    config = {"reward": {"pool": "rl/skywork"}, "data": {"train_batch_size": 0}}
    assert read_settings(config).samples is None


def test_what_functions_return_may_be_names_of_their_own() -> None:
    settings = read_settings({"reward": {"pool": "rl/rules", "rewardpool": {"info": ["acc", "pred"]}}})
    assert (settings.info, settings.spec) == (("acc", "pred"), {"pool": "rl/rules"})


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ("acc", "must be a list of names"),
        ([1], "must be a list of names"),
        (["acc", "said"], "must not have said"),
        (["fault"], "must not have fault"),
        (["failure"], "must not have failure"),
    ],
)
def test_a_name_that_is_none_or_taken_is_refused(info: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"reward\.rewardpool\.info: {said}"):
        read_settings({"reward": {"pool": "rl/rules", "rewardpool": {"info": info}}})


def test_a_function_of_the_users_own_may_have_the_tokenizer_named() -> None:
    reward = {
        "pool": "rl/judge",
        "rewardpool": {"tokenizer": "org/judge"},
        "custom_reward_function": {"path": "judge.py"},
    }
    assert read_settings({"reward": reward}).calls_function


INLINE = {"rollout": {"agent": {"default_agent_loop": "rewardpool"}}}


def test_an_agent_loop_may_leave_a_trajectory_without_a_score() -> None:
    reward = {"rewardpool": {"on_failure": "skip"}, "reward_manager": {"name": "rewardpool"}}
    assert read_settings({"reward": reward, "actor_rollout_ref": INLINE}).inline


@pytest.mark.parametrize("trainer", [{"trainer": {"use_v1": False}}, {"async_training": True}, {"rollout": True}])
def test_a_trainer_that_takes_a_number_of_every_trajectory_has_none_left_without(trainer: dict[str, Any]) -> None:
    reward = {"rewardpool": {"on_failure": "skip"}, "reward_manager": {"name": "rewardpool"}}
    with pytest.raises(ConfigError, match=r"reward\.rewardpool\.on_failure: must not be skip here"):
        read_settings({"reward": reward, "actor_rollout_ref": INLINE, **trainer})


FUNCTION = {"path": "judge.py"}
MIXTURE = [{"pool": "rl/skywork"}, {"function": "rules:short", "on_failure": "skip"}]


@pytest.mark.parametrize(
    ("reward", "field"),
    [
        ({"pool": "skywork"}, "reward.pool"),
        ({"pool": "rl/skywork", "rewardpool": "rl/other"}, "reward.rewardpool"),
        ({"pool": "rl/skywork", "rewardpool": {"rewards": MIXTURE}}, "reward.rewardpool.rewards"),
        ({"pool": "rl/skywork", "rewardpool": {"dead_line": 1}}, "reward.rewardpool.dead_line"),
        ({"pool": "rl/skywork", "rewardpool": {"on_failure": "skip"}}, "reward.rewardpool.on_failure"),
        ({"pool": "rl/skywork", "rewardpool": {"on_failure": {"infra": "skip"}}}, "reward.rewardpool.on_failure"),
        ({"rewardpool": {"rewards": MIXTURE}}, "reward.rewardpool.rewards[1].on_failure"),
        ({"pool": "rl/skywork", "rewardpool": {"normalize": "running"}}, "reward.rewardpool.normalize"),
        (
            {"pool": "rl/skywork", "rewardpool": {"weight": 2}, "custom_reward_function": FUNCTION},
            "reward.rewardpool.weight",
        ),
        (
            {"rewardpool": {"on_failure": {"policy": {"penalty": 0}}}, "custom_reward_function": FUNCTION},
            "reward.rewardpool.on_failure",
        ),
        ({"pool": "rl/skywork", "reward_model": {"enable": True}}, "reward.reward_model.enable"),
    ],
)
def test_a_wrong_key_is_named_by_its_path(reward: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings({"reward": reward})
    assert caught.value.field == field


def test_all_mistakes_are_told_at_once() -> None:
    reward = {"pool": "skywork", "reward_model": {"enable": True}}
    agent = {"default_agent_loop": "rewardpool"}
    with pytest.raises(ConfigError) as caught:
        read_settings({"reward": reward, "actor_rollout_ref": {"rollout": {"agent": agent}}})
    fields = [field for field, _ in caught.value.problems]
    assert fields == ["reward.reward_model.enable", "reward.pool", "reward.reward_manager.name"]


def test_a_url_stands_for_a_pool_too() -> None:
    assert read_settings({"reward": {"pool": "http://router:1"}}).spec == {"url": "http://router:1"}


def inline_config(**reward: Any) -> dict[str, Any]:
    agent = {"default_agent_loop": "rewardpool", "num_workers": 4}
    reward = {"pool": "rl/skywork", "num_workers": 8, "reward_manager": {"name": "rewardpool"}, **reward}
    return {"reward": reward, "actor_rollout_ref": {"rollout": {"agent": agent}}}


def test_where_agent_loops_score_their_workers_divide_the_samples() -> None:
    settings = read_settings(inline_config())
    assert (settings.inline, settings.agent_loop, settings.workers) == (True, "single_turn_agent", 4)


def test_the_agent_loop_that_writes_is_no_affair_of_the_pools() -> None:
    settings = read_settings(inline_config(rewardpool={"agent_loop": "tool_agent"}))
    assert (settings.agent_loop, settings.spec) == ("tool_agent", {"pool": "rl/skywork"})


@pytest.mark.parametrize(
    ("reward", "field"),
    [
        ({"reward_manager": {"name": "naive"}}, r"reward\.reward_manager\.name.*must be rewardpool"),
        ({"custom_reward_function": {"path": "judge.py"}}, "default_agent_loop.*custom_reward_function"),
        ({"rewardpool": {"agent_loop": "rewardpool"}}, r"reward\.rewardpool\.agent_loop.*another"),
        ({"rewardpool": {"agent_loop": 3}}, r"reward\.rewardpool\.agent_loop.*another"),
    ],
)
def test_what_does_not_go_with_scoring_in_agent_loops_is_named(reward: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        read_settings(inline_config(**reward))


def test_an_agent_loop_that_nobody_would_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="default_agent_loop=rewardpool, which is not set"):
        read_settings({"reward": {"pool": "rl/skywork", "rewardpool": {"agent_loop": "tool_agent"}}})


PROCESS = {"supervision": "process"}
BY_STEPS = {"adv_estimator": "rewardpool_process_grpo", "use_kl_in_reward": False}


@pytest.mark.parametrize("estimator", ["rewardpool_process_grpo", "gae", "reinforce_plus_plus", "my_own"])
def test_steps_have_rewards_where_agent_loops_score_and_the_estimator_goes_by_tokens(estimator: str) -> None:
    config = {**inline_config(rewardpool=PROCESS), "algorithm": {"adv_estimator": estimator}}
    assert read_settings(config).rewards_steps
    assert not read_settings(inline_config()).rewards_steps


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"algorithm": {"adv_estimator": "grpo"}}, "algorithm.adv_estimator"),
        ({"algorithm": {"adv_estimator": "rloo"}}, "algorithm.adv_estimator"),
        ({"algorithm": {**BY_STEPS, "use_kl_in_reward": True}}, "algorithm.use_kl_in_reward"),
        ({"trainer": {"use_v1": False}}, "trainer.use_v1"),
        ({"async_training": True}, "reward.rewardpool.supervision"),
        ({"rollout": True}, "reward.rewardpool.supervision"),
        ({"actor_rollout_ref": {}}, "reward.rewardpool.supervision"),
    ],
)
def test_what_would_make_one_number_of_the_rewards_of_steps_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings({**inline_config(rewardpool=PROCESS), "algorithm": BY_STEPS, **changes})
    assert caught.value.field == field
