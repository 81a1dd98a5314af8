"""The recipes of docs/recipes.md that can be run, as they stand on the page."""

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path
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


def source_of(package: str, file: str) -> ast.Module:
    """A file of an installed package that cannot be imported here, as most of what it depends on is left out."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return ast.parse((Path(spec.submodule_search_locations[0]) / file).read_text())


def definitions(tree: ast.Module, kind: Any) -> dict[str, Any]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, kind)}


def test_areals_workflow_awaits_what_the_recipe_puts_there() -> None:
    workflow = definitions(source_of("areal", "workflow/rlvr.py"), ast.ClassDef)["RLVRWorkflow"]
    waits: list[Any] = [node.value for node in ast.walk(workflow) if isinstance(node, ast.Await)]
    [call] = [call for call in waits if "async_reward_fn" in ast.unparse(call.func)]
    assert ast.unparse(call.func) == "self.async_reward_fn"
    assert (len(call.args), [keyword.arg for keyword in call.keywords]) == (4, [None])  # four texts and **task_data
    inspect.signature(recipe("areal").PoolReward.__call__).bind(object(), *call.args, answer="4", query_id="q")


def test_verifiers_has_what_its_recipe_uses() -> None:
    tasks = definitions(source_of("verifiers", "v1/task.py"), ast.ClassDef)
    traces = definitions(source_of("verifiers", "v1/trace.py"), ast.ClassDef)
    decorators = definitions(source_of("verifiers", "v1/utils/decorators.py"), ast.FunctionDef)
    assert "prompt_text" in definitions(tasks["TaskData"], ast.FunctionDef)
    assert "last_reply" in definitions(traces["Trace"], ast.FunctionDef)
    assert "Generic[DataT" in ast.unparse(tasks["Task"].bases[0])
    assert "weight" in [
        argument.arg for argument in decorators["reward"].args.args + decorators["reward"].args.kwonlyargs
    ]
    exported = {name for node in ast.walk(source_of("verifiers", "v1/__init__.py")) for name in names_in(node)}
    assert exported >= {"Task", "TaskData", "Trace", "reward"}


def names_in(node: ast.AST) -> list[str]:
    """What an import brings in."""
    return [alias.asname or alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []


def test_every_recipe_is_python() -> None:
    codes = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(codes) == 5
    for code in codes:
        compile(code, "docs/recipes.md", "exec")
