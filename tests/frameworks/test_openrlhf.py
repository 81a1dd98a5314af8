"""OpenRLHF's own rollout client, rewarded by a pool of real processes: through the gateway, and by a function file.

Its `SingleTurnAgentExecutor` is what calls for rewards in every PPO run. The engine that generates stands in for vLLM.
"""

import asyncio
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from openrlhf.utils.agent import SingleTurnAgentExecutor
from support import tiny_policy
from support.fleet import eventually
from support.local_machine import POOL, LocalMachine, finish, lasting
from support.revisions import SCORES, Workers, served

import rewardpool.openrlhf
from rewardpool.openrlhf import reward_function
from rewardpool_api import names

__all__ = ["lasting"]

pytestmark = pytest.mark.real

ROLLOUTS = 60


class StandInEngine:
    """Stands in for vLLM: generates the prompt's digit as often as it says, and the end."""

    async def generate(self, prompt_ids: list[int], params: Any, **_: Any) -> Any:
        output = SimpleNamespace(token_ids=[7] * prompt_ids[0] + [tiny_policy.END], finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


SLOW = """
import asyncio

async def slow(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(2)
    return len(solution_str)
"""


@pytest.fixture
async def machine(lasting: LocalMachine) -> LocalMachine:
    """One with a slow pool of two workers, whole again after the test before."""
    (lasting.home / "slow.py").write_text(SLOW)
    await lasting.up(model={"source": "python://slow:slow", "type": "Function"}, replicas=2)
    await lasting.serves(2)
    return lasting


async def rolled_out(url: str) -> list[Any]:
    """The rewards that OpenRLHF's executor has for rollouts whose lengths are 0 to 9, over and over."""
    executor, tokenizer = SingleTurnAgentExecutor(url), tiny_policy.make_tokenizer()
    params = SimpleNamespace(max_tokens=20, logprobs=None)
    outputs = await asyncio.gather(
        *(
            executor.execute(str(index % 10), "label", params, 64, tokenizer, StandInEngine())
            for index in range(ROLLOUTS)
        )
    )
    return [output["reward"] for output in outputs]


async def while_worker_and_router_die(machine: LocalMachine, url: str) -> list[Any]:
    """The rewards, though both are killed with -9 while samples of 2 s each are in flight."""
    rolling = asyncio.create_task(rolled_out(url))
    for victim in (machine.worker(), machine.router()):
        await asyncio.sleep(0.5)
        victim.kill()
    assert not rolling.done()
    return await rolling


@asynccontextmanager
async def gateway(machine: LocalMachine, *options: str) -> AsyncIterator[tuple[str, "subprocess.Popen[str]"]]:
    """`rewardpool gateway` on a free port; gives its URL for OpenRLHF, and its process."""
    process = machine.start("gateway", POOL, "--listen", "127.0.0.1:0", *options)
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    found = re.search(r"answers at (http://\S+)/get_reward", line)
    assert found is not None, line
    yield found.group(1), process


EXPECTED = [float(index % 10) for index in range(ROLLOUTS)]


async def test_the_gateway_answers_openrlhf_though_worker_and_router_die_and_ends_when_told(
    machine: LocalMachine, policy_tokenizer: Path
) -> None:
    async with gateway(machine, "--policy-tokenizer", str(policy_tokenizer)) as (url, process):
        rewards = await while_worker_and_router_die(machine, url + "/get_reward")
        process.send_signal(signal.SIGTERM)
        code, said = await finish(process)
    assert [reward for [reward] in rewards] == EXPECTED
    assert code == 0
    assert "needed a retry" in said


async def test_requests_in_flight_are_answered_before_the_gateway_ends(machine: LocalMachine) -> None:
    key_file = machine.home / "gateway.key"
    async with gateway(machine, "--key-file", str(key_file)) as (url, process), aiohttp.ClientSession() as session:
        with_key = url.replace("http://", f"http://trainer:{key_file.read_text()}@")
        sample = {"prompt": "p", "response": "four", "label": ""}
        async with session.post(url + "/slime", json=sample) as answer:
            assert answer.status == 401
        asked = [asyncio.create_task(session.post(with_key + "/slime", json=sample)) for _ in range(20)]

        async def all_are_there() -> bool:
            async with session.get(url + "/metrics") as answer:
                return "rewardpool_gateway_in_flight 20.0" in await answer.text()

        await eventually(all_are_there, what="20 requests are in flight")
        process.send_signal(signal.SIGTERM)
        assert [await answer.json() for answer in await asyncio.gather(*asked)] == [4.0] * 20
        assert await finish(process) == (0, "")


@pytest.mark.parametrize(("group", "scores"), [("task-1", 1), (None, 2)])
async def test_one_revision_scores_a_group_as_long_as_it_serves(
    group: str | None, scores: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rewardpool.openrlhf, "group_of_call", lambda: group)
    workers = Workers("a", "b")
    async with served(workers) as url:
        function = reward_function({"url": url, "type": "Function"}, batch=1)

        async def reward_of(response: str) -> float:
            answer = await asyncio.to_thread(function, [f"prompt{response}"], ["prompt"], [None])
            return float(answer["rewards"].item())

        rewards = await asyncio.gather(*map(reward_of, "123456"))
        assert len(set(rewards)) == scores
        if group is not None:
            [first] = set(rewards)
            workers.revisions = ["a" if first == SCORES["b"] else "b"]
            assert await reward_of("7") not in rewards
            assert "two revisions score a group" in caplog.text


@pytest.fixture
def _finds_pools(machine: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])
    monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))
    monkeypatch.setenv(names.ENV_POOL, POOL)


@pytest.mark.usefixtures("_finds_pools")
async def test_a_function_file_needs_no_gateway_though_worker_and_router_die(
    machine: LocalMachine, policy_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = machine.home / "reward.py"
    file.write_text(
        "from rewardpool.openrlhf import reward_function\n"
        f"reward_func = reward_function({POOL!r}, policy_tokenizer={str(policy_tokenizer)!r})\n"
    )
    rewards = await while_worker_and_router_die(machine, str(file))
    assert [reward.item() for reward in rewards] == EXPECTED
    monkeypatch.setenv(rewardpool.openrlhf.ENV_POLICY_TOKENIZER, str(policy_tokenizer))
    itself = await rolled_out(rewardpool.openrlhf.__file__)
    assert [reward.item() for reward in itself] == EXPECTED
