"""The recipes of docs/recipes.md that can be run, as they stand on the page."""

import inspect
import re
import sys
from types import ModuleType
from typing import Any

import pytest
import skyrl_gym
from support import tiny_policy
from support.fleet import ROOT

from rewardpool.rewards import LazyReward

PAGE = (ROOT / "docs" / "recipes.md").read_text()
POOL = '"rl/skywork"'


def right(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    return float(solution_str == ground_truth)


def recipe(name: str) -> ModuleType:
    """The page's code of that name, with a function in place of the pool."""
    [code] = re.findall(rf"```python\n(# {name}\b.*?)```", PAGE, re.DOTALL)
    module = ModuleType(f"recipe_{name}")
    module.__dict__["FUNCTION"] = {"function": right}
    exec(compile(code.replace(POOL, "FUNCTION"), "docs/recipes.md", "exec"), module.__dict__)
    return module


def test_skyrl_steps_through_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    module = recipe("skyrl")
    monkeypatch.setitem(sys.modules, "recipe_skyrl", module)
    skyrl_gym.register(id="pool", entry_point="recipe_skyrl:PoolEnv")
    env = skyrl_gym.make("pool", extras={"reward_spec": {"ground_truth": "4"}})
    env.init([{"role": "user", "content": "2+2?"}])
    step = env.step("4")
    assert (step["reward"], step["done"], step["metadata"]) == (1.0, True, {"right": 1.0})
    module.REWARD.close()


async def test_areal_awaits_the_reward() -> None:
    reward = recipe("areal").PoolReward({"function": right}, tiny_policy.make_tokenizer())
    assert inspect.iscoroutinefunction(reward.__call__)
    assert await reward("22", "4<end>", [2, 2], [4, 10], answer="4", query_id="q") == 1.0
    assert isinstance(reward.reward, LazyReward)
    reward.reward.close()


def test_every_recipe_is_python() -> None:
    codes = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(codes) == 5
    for code in codes:
        compile(code, "docs/recipes.md", "exec")
