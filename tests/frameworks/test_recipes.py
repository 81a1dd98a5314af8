"""The recipes of docs/recipes.md, as they stand on the page: the trainers' own classes ask a pool of real processes by
them, and are given no number for a sample that has none.
"""

import ast
import importlib.util
import inspect
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import skyrl_gym
import torch
import uvicorn
from support import tiny_policy
from support.fleet import ROOT
from support.local_machine import POOL, LocalMachine
from support.reward_functions import expected_score

from rewardpool._rewards import LazyReward
from rewardpool.errors import SampleError
from rewardpool_api import names

PAGE = (ROOT / "docs" / "recipes.md").read_text()
NO_SOLUTION = "there is no solution to score"
"""What the pool's function says of an empty response."""

on_pool = pytest.mark.usefixtures("pool_is_found")


@pytest.fixture
def pool_is_found(machine: LocalMachine, function_pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes find the session's pool by its name, as on a user's machine."""
    monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])
    monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))


@contextmanager
def recipe(name: str) -> Iterator[ModuleType]:
    """The page's code of that name, with the session's pool; what it opened is closed at the end."""
    [code] = re.findall(rf"```python\n(# {name}\b.*?)```", PAGE, re.DOTALL)
    module = ModuleType(f"recipe_{name}")
    sys.modules[module.__name__] = module
    exec(compile(code.replace('"rl/skywork"', repr(POOL)), "docs/recipes.md", "exec"), module.__dict__)
    try:
        yield module
    finally:
        del sys.modules[module.__name__]
        for value in vars(module).values():
            if isinstance(value, LazyReward):
                value.close()


@on_pool
def test_skyrl_steps_through_an_environment() -> None:
    with recipe("skyrl"):
        skyrl_gym.register(id="pool", entry_point="recipe_skyrl:PoolEnv")
        env = skyrl_gym.make("pool", extras={"reward_spec": {"ground_truth": "4"}})
        env.init([{"role": "user", "content": "2+2?"}])
        step = env.step("4")
        assert (step["reward"], step["done"]) == (pytest.approx(expected_score("4")), True)
        with pytest.raises(SampleError, match=NO_SOLUTION):
            env.step("")


@on_pool
async def test_verifiers_scores_a_trace_and_leaves_a_failed_one_unscored() -> None:
    vf = pytest.importorskip("verifiers.v1")
    with recipe("verifiers") as module:
        task = module.PoolTask(vf.TaskData(prompt="2+2?"))

        def trace(reply: str) -> Any:
            agent = {"config": {"model": "none"}}
            return vf.Trace(task={"type": "PoolTask", "data": task.data}, agent=agent, root_reply=reply)

        scored, failed = trace("4"), trace("")
        await task.score(scored)
        assert scored.reward == pytest.approx(expected_score("4"))
        with pytest.raises(vf.TaskError, match=NO_SOLUTION):
            await task.score(failed)
        assert failed.rewards == {"skywork": None}


def gym_request(text: str) -> dict[str, Any]:
    """What NeMo Gym's agent sends to `/verify` for a response."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    response = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": [message]}
    response |= {"parallel_tool_calls": False, "tool_choice": "none", "tools": []}
    asked = {"input": [{"role": "user", "content": "2+2?"}]}
    return {"responses_create_params": asked, "response": response, "expected_answer": "4"}


@on_pool
async def test_nemo_gyms_resources_server_verifies_and_fails_a_request_without_a_score() -> None:
    from nemo_gym.base_resources_server import BaseResourcesServerConfig
    from nemo_gym.server_utils import BaseServerConfig, ServerClient
    from omegaconf import OmegaConf

    head = BaseServerConfig(host="127.0.0.1", port=1)  # nobody calls it
    client = ServerClient(head_server_config=head, global_config_dict=OmegaConf.create({}))
    config = BaseResourcesServerConfig(host="127.0.0.1", port=1, entrypoint="app.py", name="pool")
    with recipe("nemo_gym") as module:
        app = module.PoolServer(config=config, server_client=client).setup_webserver()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gym") as gym:
            scored = await gym.post("/verify", json=gym_request("4"))
            failed = await gym.post("/verify", json=gym_request(""))
        assert scored.json()["reward"] == pytest.approx(expected_score("4"))
        assert scored.json()["mask_sample"] is False
        assert failed.status_code == 500


@pytest.fixture
def openenv(monkeypatch: pytest.MonkeyPatch) -> Any:
    """OpenEnv, with a stand-in for fastmcp, its client for tools: that needs mcp 1, and verifiers needs mcp 2."""
    stand_ins = {"fastmcp": ("Client", "FastMCP"), "fastmcp.client": (), "fastmcp.client.client": ("CallToolResult",)}
    for name, members in stand_ins.items():
        module = ModuleType(name)
        vars(module).update({member: type(member, (), {}) for member in members})
        monkeypatch.setitem(sys.modules, name, module)
    import openenv.core

    return openenv.core


@contextmanager
def served(app: Any) -> Iterator[str]:
    """An app behind uvicorn on a port of its own; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(30)


@on_pool
@pytest.mark.parametrize("on_failure", ["raise", "skip"])
async def test_openenvs_client_is_rewarded_and_told_of_a_failure(openenv: Any, on_failure: str) -> None:
    with recipe("openenv") as module:

        class Answer(openenv.Action):
            response: str

        class Question(openenv.Observation):
            prompt: str = "2+2?"

        class Asking(openenv.Environment):
            SUPPORTS_CONCURRENT_SESSIONS = True
            state = openenv.State()

            def reset(self, *_: Any, **__: Any) -> Question:
                return Question()

            def step(self, *_: Any, **__: Any) -> Question:
                raise NotImplementedError

            async def step_async(self, action: Answer, *_: Any, **__: Any) -> Question:
                observation = Question(done=True)
                observation.reward = await self._apply_rubric_async(action, observation)
                return observation

        rubric = module.PoolRubric({"pool": POOL, "on_failure": on_failure})
        app = openenv.create_fastapi_app(lambda: Asking(rubric=rubric), Answer, Question)
        with served(app) as url:
            async with openenv.GenericEnvClient(base_url=url) as client:
                await client.reset()
                assert (await client.step({"response": "4"})).reward == pytest.approx(expected_score("4"))
                if on_failure == "skip":
                    assert (await client.step({"response": ""})).reward is None
                else:
                    with pytest.raises(RuntimeError, match=NO_SOLUTION):
                        await client.step({"response": ""})
        rubric.reward.close()


@on_pool
async def test_areal_awaits_the_reward() -> None:
    with recipe("areal") as module:
        reward = module.PoolReward(POOL, tiny_policy.make_tokenizer())
        assert inspect.iscoroutinefunction(reward.__call__)
        score = await reward("22", "4<end>", [2, 2], [4, 10], answer="4", query_id="q")
        assert score == pytest.approx(expected_score("4"))
        with pytest.raises(SampleError, match=NO_SOLUTION):
            await reward("22", "<end>", [2, 2], [10], answer="4", query_id="q")
        reward.reward.close()


@on_pool
def test_nemo_rls_environment_returns_the_batchs_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    source = os.environ.get("NEMO_RL_SOURCE")
    if source is None:
        pytest.skip("NeMo-RL is on no package index; set NEMO_RL_SOURCE to the path of its source")
    monkeypatch.syspath_prepend(source)
    with recipe("nemo_rl") as module:
        environment = module.PoolEnvironment.__ray_metadata__.modified_class(POOL)
        logs = [[{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": text}] for text in ("4", "5")]
        returned = environment.step(logs, [{}, {}])
        torch.testing.assert_close(returned.rewards, torch.tensor([expected_score("4"), expected_score("5")]))
        assert (returned.terminateds.tolist(), len(returned.observations)) == ([True, True], 2)
        logs[1][-1]["content"] = ""
        with pytest.raises(SampleError, match=NO_SOLUTION):
            environment.step(logs, [{}, {}])
        environment.reward.close()


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
    with recipe("areal") as module:
        inspect.signature(module.PoolReward.__call__).bind(object(), *call.args, answer="4", query_id="q")


def test_every_recipe_is_python() -> None:
    codes = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(codes) == 7
    for code in codes:
        compile(code, "docs/recipes.md", "exec")
