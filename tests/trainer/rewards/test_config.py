"""What a config may say under `reward`, and that a mistake is named by its whole path."""

from typing import Any

import pytest

from rewardpool._config import FaultPolicies, Penalty
from rewardpool._rewards.config import parse_reward
from rewardpool._rewards.part_config import FunctionPart, LengthPenaltyPart, PoolPart
from rewardpool.errors import ConfigError

POOL: dict[str, Any] = {"pool": "rl/skywork"}
JUDGE: dict[str, Any] = {"pool": "rl/judge"}
RULE: dict[str, Any] = {"function": "pkg.mod:rule"}
LENGTH_PENALTY: dict[str, Any] = {"length_penalty": {"max_tokens": 100, "buffer_tokens": 20}}


def mixture(*rewards: Any, **more: Any) -> dict[str, Any]:
    return {"rewards": list(rewards), **more}


@pytest.mark.parametrize("spec", ["rl/skywork", {"pool": "rl/skywork"}, mixture("rl/skywork")])
def test_one_key_is_a_reward(spec: Any) -> None:
    [part] = parse_reward(spec).parts
    assert isinstance(part, PoolPart)
    assert (part.name, part.client.pool, part.weight) == ("skywork", "rl/skywork", 1.0)


def test_a_mixture_has_parts_of_every_kind_each_with_a_name() -> None:
    spec = parse_reward(mixture({**POOL, "weight": 0.5}, {**JUDGE, "name": "style"}, RULE, LENGTH_PENALTY))
    assert [part.name for part in spec.parts] == ["skywork", "style", "rule", "length_penalty"]
    assert [type(part) for part in spec.parts] == [PoolPart, PoolPart, FunctionPart, LengthPenaltyPart]
    assert [part.weight for part in spec.parts] == [0.5, 1.0, 1.0, 1.0]
    assert spec.paths[1] == "reward.rewards[1]"


def test_settings_beside_the_parts_hold_for_each_that_says_nothing_else() -> None:
    spec = parse_reward(mixture(POOL, {**JUDGE, "timeout": 300}, RULE, timeout=30, on_failure="skip"))
    one, other, rule = spec.parts
    assert isinstance(one, PoolPart)
    assert isinstance(other, PoolPart)
    assert (one.client.timeout, other.client.timeout) == (30, 300)
    assert [part.on_failure for part in (one, other, rule)] == ["skip"] * 3


def test_the_client_raises_whatever_the_policy_of_the_part() -> None:
    [part] = parse_reward({"pool": "rl/skywork", "on_failure": {"policy": {"penalty": -1}}}).parts
    assert isinstance(part, PoolPart)
    assert part.client.on_failure == "raise"
    assert part.on_failure == FaultPolicies(policy=Penalty(penalty=-1))


def test_a_function_may_be_given_itself() -> None:
    def rule(**_: Any) -> float:
        return 1.0

    [part] = parse_reward({"function": rule}).parts
    assert part.name == "rule"


def test_words_stand_for_a_url_and_for_a_function() -> None:
    router, rule = parse_reward(mixture({"url": "http://router", "name": "router"}, "python://pkg.mod:rule")).parts
    assert isinstance(router, PoolPart)
    assert isinstance(rule, FunctionPart)
    assert (rule.name, rule.function) == ("rule", "pkg.mod:rule")
    [part] = parse_reward("http://router").parts
    assert isinstance(part, PoolPart)
    assert part.client == router.client
    assert [part.name for part in parse_reward(len).parts] == ["len"]


def test_all_mistakes_of_a_mixture_are_told_at_once_and_each_once() -> None:
    parts = [{**POOL, "wieght": 1, "clip": [1, 1]}, {"function": "nothing"}, {}]
    with pytest.raises(ConfigError) as caught:
        parse_reward(mixture(*parts, timeout=0, combine="max", url="http://h"))
    assert [field for field, _ in caught.value.problems] == [
        "reward.url",
        "reward.timeout",
        "reward.rewards[0].wieght",
        "reward.rewards[0].clip",
        "reward.rewards[1].function",
        "reward.rewards[2]",
        "reward.combine",
    ]


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ("skywork", "reward.pool", "namespace/name"),
        (7, "reward", "mapping"),
        ({"pool": "rl/a", "colour": 1}, "reward.colour", "unknown key"),
        ({"pool": "rl/a", "timeout": 0}, "reward.timeout", "greater than 0"),
        ({"pool": "rl/a", "tokenizer": 3}, "reward.tokenizer", "string"),
        ({"pool": "rl/a", "function": "m:f"}, "reward", "several things"),
        (mixture(), "reward.rewards", "at least one"),
        (mixture(7), "reward.rewards[0]", "mapping"),
        ({"pool": "rl/a", "wieght": 2}, "reward.wieght", "did you mean weight?"),
        ({"pool": "rl/a", "judge": {"rubrics": []}}, "reward.judge.rubrics", "did you mean rubric?"),
        ({"pool": "rl/a", "judge": {"meta": {"kep": 1}}}, "reward.judge.meta.keep", "required"),
        (mixture(POOL, timeot=1), "reward.timeot", "did you mean timeout?"),
        ({"rewards": "rl/a"}, "reward.rewards", "list"),
        (mixture({}), "reward.rewards[0]", "needs one of"),
        (mixture({"weight": 1}), "reward.rewards[0]", "needs one of"),
        (mixture({"pool": "a"}), "reward.rewards[0].pool", "namespace/name"),
        (mixture(POOL, {**RULE, "weight": "much"}), "reward.rewards[1].weight", "number"),
        (mixture({**POOL, "weight": float("nan")}), "reward.rewards[0].weight", "finite"),
        (mixture(POOL, POOL), "reward.rewards[1].name", "reward.rewards[0]"),
        (mixture({**POOL, "name": "a b"}), "reward.rewards[0].name", "pattern"),
        (mixture({**POOL, "clip": [1, 1]}), "reward.rewards[0].clip", "below"),
        (mixture({**POOL, "clip": [1]}), "reward.rewards[0].clip.1", "required"),
        (mixture({**POOL, "normalize": "all"}), "reward.rewards[0].normalize", "'group' or 'running'"),
        (mixture({**POOL, "on_failure": "zero"}), "reward.rewards[0].on_failure", "'raise' or 'skip'"),
        (mixture(POOL, on_failure="zero"), "reward.on_failure", "'raise' or 'skip'"),
        (mixture(POOL, combine="max"), "reward.combine", "'sum', 'product' or 'gate'"),
        (mixture(POOL, pool="rl/b"), "reward.pool", "does not go with rewards"),
        (mixture(POOL, colour=1), "reward.colour", "unknown key"),
        (mixture(POOL, combine="gate"), "reward", "at least one part with gate"),
        (mixture({**POOL, "gate": {"at_least": 1}}, combine="gate"), "reward", "at least one without"),
        (mixture({**POOL, "gate": {"at_least": 1}}), "reward", "set combine to gate"),
        (mixture({**POOL, "gate": {}}, RULE, combine="gate"), "reward.rewards[0].gate.at_least", "required"),
        (mixture({**POOL, "gate": {"at_least": 1}, "weight": 2}), "reward.rewards[0]", "leave out weight"),
        (mixture({"function": "nothing"}), "reward.rewards[0].function", "module:function"),
        (mixture({"length_penalty": {"max_tokens": 5}}), "reward.rewards[0].length_penalty.buffer_tokens", "required"),
        (
            mixture({"length_penalty": {"max_tokens": 5, "buffer_tokens": 6}}),
            "reward.rewards[0].length_penalty",
            "not be more",
        ),
        (mixture(POOL, post_process="f"), "reward.post_process", "module:function"),
    ],
)
def test_a_mistake_is_named_by_its_path(spec: Any, field: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_reward(spec)
    assert caught.value.field == field
    assert said in caught.value.problem


@pytest.mark.parametrize(
    ("judge", "field", "said"),
    [
        ({"prompt": "Rate {respnse}"}, "judge", "{respnse}"),
        ({"prompt": "Rate it"}, "judge", "prompt must have the field {response}"),
        ({"mode": "pairwise", "prompt": "{response}"}, "judge", "unknown field {response}"),
        ({"mode": "pairwise", "range": [0, 1]}, "judge", "not for mode pairwise"),
        ({"opponents": 4}, "judge", "for mode pairwise"),
        ({"range": [10, 1]}, "judge.range", "below"),
        ({"range": [0, 0.5]}, "judge", "whole bounds"),
        ({"output": "regex"}, "judge.output", "'json', 'choice', 'probabilities' or 'text'"),
        ({"output": "choice", "range": [0, 1], "whole": False}, "judge", "labels"),
        ({"labels": {"good": "x", "bad": 0}}, "judge.labels.good", "number"),
        ({"votes": 0}, "judge.votes", "greater than or equal to 1"),
        ({"sampling": {"seed": 1}}, "judge", "seed, which is set elsewhere"),
    ],
)
def test_a_judge_that_does_not_fit_together_is_refused_before_anything_is_asked(
    judge: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_reward(mixture(POOL, {**JUDGE, "judge": judge}))
    assert caught.value.field == f"reward.rewards[1].{field}"
    assert said in caught.value.problem
