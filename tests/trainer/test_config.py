import pickle
import re
from typing import Any

import pytest

from rewardpool import FaultPolicies, Penalty, RewardConfig
from rewardpool.errors import ConfigError


def test_one_key_is_enough() -> None:
    config = RewardConfig.parse({"pool": "rl/skywork"})
    assert (config.on_failure, config.timeout) == ("raise", 120.0)


def test_a_penalty_is_named_for_the_policys_faults_alone_and_the_others_raise() -> None:
    policies = RewardConfig.parse({"on_failure": {"policy": {"penalty": -1}, "infra": "skip"}}).on_failure
    assert policies == FaultPolicies(policy=Penalty(penalty=-1.0), verifier="raise", infra="skip", capacity="raise")


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
        ({"on_failure": {"constant": 0}}, "reward.on_failure.constant", "unknown key"),
        ({"on_failure": {"polcy": "skip"}}, "reward.on_failure.polcy", "did you mean policy?"),
        ({"on_failure": {"policy": -1}}, "reward.on_failure.policy", "such as {penalty: -1}"),
        ({"on_failure": {"policy": {}}}, "reward.on_failure.policy.penalty", "Field required"),
        *(
            ({"on_failure": {fault: {"penalty": 0}}}, f"reward.on_failure.{fault}", "must be raise or skip: the policy")
            for fault in ("verifier", "infra", "capacity")
        ),
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
        RewardConfig.parse({"pool": "skywork", "timout": 3, "on_failure": {"policy": {"penalty": "x"}}})
    assert str(caught.value).splitlines() == [
        "reward.pool: must be namespace/name of a RewardPool, such as rl/skywork",
        "reward.on_failure.policy.penalty: Input should be a valid number, unable to parse string as a number",
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


def test_a_penalty_that_is_not_a_finite_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="on_failure"):
        RewardConfig.parse({"on_failure": {"policy": {"penalty": float("nan")}}})


def test_a_refused_url_does_not_repeat_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        RewardConfig.parse({"url": "http://me:secret@router"})
    assert "secret" not in str(caught.value)
