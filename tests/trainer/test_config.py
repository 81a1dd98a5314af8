import pickle
import re
from typing import Any

import pytest

from rewardpool import Constant, RewardConfig
from rewardpool.errors import ConfigError


def test_one_key_is_enough() -> None:
    config = RewardConfig.parse({"pool": "rl/skywork"})
    assert (config.on_failure, config.timeout) == ("raise", 120.0)


def test_a_constant_has_to_be_asked_for_explicitly() -> None:
    assert RewardConfig.parse({"on_failure": {"constant": -1}}).on_failure == Constant(constant=-1.0)


@pytest.mark.parametrize(
    ("raw", "field", "problem"),
    [
        ({"pool": "skywork"}, "reward.pool", "must be namespace/name"),
        ({"pool": "a/../b"}, "reward.pool", "must be namespace/name"),
        ({"poll": "rl/skywork"}, "reward.poll", "unknown key; did you mean pool?"),
        ({"colour": 1}, "reward.colour", "^unknown key$"),
        ({"url": "router:8080"}, "reward.url", "must be http://"),
        ({"url": "http://me:secret@router"}, "reward.url", "must not contain credentials"),
        ({"url": "http://router/?a=1"}, "reward.url", "without query"),
        ({"max_attempts": 0}, "reward.max_attempts", "greater than or equal to 1"),
        ({"concurrency": "many"}, "reward.concurrency", "valid integer"),
        ({"timeout": 0}, "reward.timeout", "greater than 0"),
        ({"on_failure": "zero"}, "reward.on_failure", "'raise' or 'skip'"),
    ],
)
def test_a_mistake_is_told_by_the_path_of_its_field(raw: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RewardConfig.parse(raw)
    [(at, said)] = caught.value.problems
    assert at.startswith(field)
    assert re.search(problem, said)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        RewardConfig.parse({"pool": "skywork", "timout": 3, "on_failure": {"constant": "x"}})
    assert str(caught.value).splitlines() == [
        "reward.pool: must be namespace/name of a RewardPool, such as rl/skywork",
        "reward.on_failure.constant: Input should be a valid number, unable to parse string as a number",
        "reward.timout: unknown key; did you mean timeout?",
    ]


def test_mistakes_survive_pickling() -> None:
    error = ConfigError("a", "is wrong", ("b", "is wrong too"))
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


@pytest.mark.parametrize(
    ("pool", "config"),
    [
        ("rl/skywork", RewardConfig(pool="rl/skywork")),
        ("https://router:30000/", RewardConfig(url="https://router:30000")),
        ({"pool": "rl/skywork", "timeout": 5}, RewardConfig(pool="rl/skywork", timeout=5)),
    ],
)
def test_a_name_a_url_and_fields_stand_for_a_pool(pool: Any, config: RewardConfig) -> None:
    assert RewardConfig.of(pool) == config == RewardConfig.of(config)


def test_a_constant_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="on_failure"):
        RewardConfig.parse({"on_failure": {"constant": float("nan")}})


def test_a_refused_url_does_not_repeat_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        RewardConfig.parse({"url": "http://me:secret@router"})
    assert "secret" not in str(caught.value)
