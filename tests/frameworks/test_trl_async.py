"""TRL's AsyncRolloutWorker with a pool: its child process asks for the rewards, though worker and router die.

The worker, its child process and the queues between are TRL's own. The engine that it generates with is a stand-in: it
answers `/v1/completions`, where vLLM would. `AsyncGRPOTrainer` itself needs a GPU to hand weights over.
"""

import asyncio
from collections.abc import AsyncIterator

import accelerate
import datasets
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support import tiny_policy
from support.fleet import eventually
from support.local_machine import POOL, LocalMachine, machine
from support.local_pool import JOB
from trl.experimental.async_grpo import async_rollout_worker

import rewardpool.trl
from rewardpool_api import names
from rewardpool_runtime.state_files import DEMANDS_DIR

__all__ = ["machine"]

pytestmark = pytest.mark.real

GROUP = 4
SAMPLES = 24
ANSWER = {
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "content": {"type": "string", "x-regex": r"^(.*?)(?:<end>|$)"},
    },
}
"""How TRL reads the policy's answers; it knows the chat templates of common models only."""


async def completions(request: web.Request) -> web.Response:
    """The prompt's digit as often as it says."""
    digit = (await request.json())["prompt"][0]
    choice = {"token_ids": [digit] * digit + [tiny_policy.END], "logprobs": {"token_logprobs": [0.0] * (digit + 1)}}
    return web.json_response({"choices": [choice]})


@pytest.fixture
async def stand_in_engine() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/completions", completions)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.fixture
def worker(
    stand_in_engine: str, machine: LocalMachine, monkeypatch: pytest.MonkeyPatch
) -> async_rollout_worker.AsyncRolloutWorker:
    """TRL's, with the pool's reward; its child finds the pool by the environment."""
    accelerate.PartialState()  # the trainer makes it, before the worker
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)  # the stand-in is in its place
    monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])
    monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))
    monkeypatch.setenv(names.ENV_JOB, JOB)
    monkeypatch.setenv("RANK", "0")
    tokenizer = tiny_policy.make_tokenizer()
    tokenizer.response_schema = ANSWER
    prompts = [[{"role": "user", "content": digit}] for digit in "12345678"]
    return async_rollout_worker.AsyncRolloutWorker(
        model_name="policy",
        dataset=datasets.Dataset.from_dict({"prompt": prompts, "extra_info": [{"seconds": 0.4}] * len(prompts)}),
        reward_funcs=[rewardpool.trl.reward(POOL)],
        processing_class=tokenizer,
        eos_token_ids=[tiny_policy.END],
        num_generations=GROUP,
        max_inflight_tasks=8,
        vllm_server_url=stand_in_engine,
        queue_maxsize=8,
    )


async def test_the_child_process_has_every_reward_though_worker_and_router_die(
    machine: LocalMachine, worker: async_rollout_worker.AsyncRolloutWorker
) -> None:
    await machine.up(replicas=2)
    await asyncio.to_thread(worker.start)
    try:
        rollouts = []
        victims = {4: machine.worker, 12: machine.router}
        while len(rollouts) < SAMPLES:
            rollouts.append(await asyncio.to_thread(worker.rollout_buffer.get, timeout=60))
            if victim := victims.get(len(rollouts)):
                victim().kill()
        announced = machine.folder.path / DEMANDS_DIR / f"{JOB}.json"

        async def generates_all_the_time() -> bool:
            return announced.exists() and '"Rollout"' in announced.read_text()

        await eventually(generates_all_the_time, what="the child announces one long rollout")
        await asyncio.to_thread(worker.check_health, 60)
    finally:
        await asyncio.to_thread(worker.stop)
    assert (await machine.run("down"))[0] == 0
    for rollout in rollouts:
        assert rollout.metrics["reward"] == rollout.metrics["rewards/length"] == float(rollout.prompt[0]["content"])
