from typing import Any

import pytest

from rewardpool import Constant, RewardConfig
from rewardpool.errors import ConfigError


def test_one_key_is_enough() -> None:
    config = RewardConfig.parse({"reward_pool": "rl/skywork"})
    assert (config.on_failure, config.seconds_per_attempt) == ("raise", 30.0)


def test_a_constant_has_to_be_asked_for_in_so_many_words() -> None:
    assert RewardConfig.parse({"on_failure": {"constant": -1}}).on_failure == Constant(constant=-1.0)


@pytest.mark.parametrize(
    ("raw", "field", "problem"),
    [
        ({"reward_pool": "skywork"}, "reward.reward_pool", "must be namespace/name"),
        ({"reward_pool": "a/../b"}, "reward.reward_pool", "must be namespace/name"),
        ({"pool": "rl/skywork"}, "reward.pool", "not permitted"),
        ({"url": "router:8080"}, "reward.url", "must be http://"),
        ({"url": "http://me:secret@router"}, "reward.url", "must not contain credentials"),
        ({"url": "http://router/?a=1"}, "reward.url", "without query"),
        ({"max_attempts": 0}, "reward.max_attempts", "greater than or equal to 1"),
        ({"concurrency": "many"}, "reward.concurrency", "valid integer"),
        ({"timeout": 0}, "reward.timeout", "greater than 0"),
        ({"attempt_timeout": 120}, "reward", "attempt_timeout must be shorter than timeout"),
        ({"on_failure": "zero"}, "reward.on_failure", "'raise' or 'skip'"),
    ],
)
def test_a_mistake_is_told_by_the_path_of_its_field(raw: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        RewardConfig.parse(raw)
    assert caught.value.field.startswith(field)


def test_a_constant_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="on_failure"):
        RewardConfig.parse({"on_failure": {"constant": float("nan")}})


def test_a_refused_url_does_not_repeat_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        RewardConfig.parse({"url": "http://me:secret@router"})
    assert "secret" not in str(caught.value)
