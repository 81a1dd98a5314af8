"""verl's own RewardLoopWorker, in this process: every kind of pool through it scores as the pool does directly."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import transformers
from support.local_machine import POOL, LocalMachine
from support.processes import http
from support.reward_functions import expected_score
from support.verl_job import batch_of, verl_config
from support.vllm_server import VllmServer, quickstart_pool
from verl.experimental.reward_loop import RewardLoopWorker

from rewardpool.client.shared import shared
from rewardpool.errors import FunctionFailedError, InvalidSampleError, PoolNotFoundError
from rewardpool_api import names

pytestmark = pytest.mark.real

MakeWorker = Callable[..., RewardLoopWorker]
QUIETLY = "+reward.rewardpool.announce=false"
MANAGER = "reward.reward_manager.name=rewardpool"
JUDGE_FUNCTION = """
import aiohttp

async def compute_score(
    data_source, solution_str, ground_truth, extra_info, reward_router_address, reward_model_tokenizer
):
    assert reward_model_tokenizer.decode(reward_model_tokenizer("7")["input_ids"]) == "7"
    request = {
        "model": "/weights/judge",
        "messages": [{"role": "user", "content": solution_str}],
        "max_tokens": 8,
        "temperature": 0,
    }
    async with aiohttp.ClientSession() as session:
        async with session.post(f"http://{reward_router_address}/v1/chat/completions", json=request) as answer:
            written = (await answer.json())["choices"][0]["message"]["content"]
    return {"score": len(written), "written": written}
"""


@pytest.fixture
async def make_worker(
    machine: LocalMachine, policy_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MakeWorker]:
    """Makes a worker of the overrides that a user writes."""
    monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])
    monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))
    yield lambda *overrides: RewardLoopWorker(verl_config(policy_tokenizer, *overrides))
    await shared().close()


def at_server(server: VllmServer, folder: Path, model: Path | None, *, kind: str | None) -> list[str]:
    """Overrides for a pool that is known by its URL."""
    key_file = folder / "key"
    key_file.write_text(server.key)
    settings = {"url": server.url, "key_file": key_file, "served_name": server.served_name}
    settings |= {name: value for name, value in {"tokenizer": model, "type": kind}.items() if value is not None}
    return [MANAGER, *(f"+reward.rewardpool.{name}={value}" for name, value in settings.items())]


def model_folder(name: str) -> Path:
    return Path(quickstart_pool().spec.model.source.removeprefix("file://")).with_name(name)


async def test_a_custom_reward_function_of_verl_can_be_the_pool(make_worker: MakeWorker, function_pool: str) -> None:
    worker = make_worker(
        "reward.custom_reward_function.path=pkg://rewardpool.verl.reward",
        f"+reward.custom_reward_function.reward_kwargs.pool={function_pool}",
        "+reward.custom_reward_function.reward_kwargs.rewardpool.announce=false",
    )
    scored = await worker.compute_score_batch(batch_of(["123", "45"]))
    assert [one["reward_score"] for one in scored] == [expected_score("123"), expected_score("45")]


async def test_a_mixture_has_every_component_beside_the_total(make_worker: MakeWorker, function_pool: str) -> None:
    parts = f"[{{pool:{function_pool},weight:2}},{{length_penalty:{{max_tokens:8,buffer_tokens:8}}}}]"
    worker = make_worker(MANAGER, f"+reward.rewardpool.rewards={parts}", QUIETLY)
    [one] = await worker.compute_score_batch(batch_of(["123"]))  # 4 tokens with the one that ends it
    name = POOL.partition("/")[2]
    assert one["reward_score"] == pytest.approx(2 * expected_score("123") - 0.5)
    assert one["reward_extra_info"][f"component/{name}"] == expected_score("123")
    assert one["reward_extra_info"]["component/length_penalty"] == -0.5


async def test_a_reward_model_scores_as_it_does_directly(
    make_worker: MakeWorker, vllm_server: VllmServer, tmp_path: Path
) -> None:
    model = model_folder("reward-model")
    worker = make_worker(*at_server(vllm_server, tmp_path, model, kind="Discriminative"))
    [one] = await worker.compute_score_batch(batch_of(["123"]))
    turns = [{"role": "user", "content": "12"}, {"role": "assistant", "content": "123"}]
    text = transformers.AutoTokenizer.from_pretrained(model).apply_chat_template(turns, tokenize=False)
    request = {"model": vllm_server.served_name, "input": text}
    direct = http("POST", vllm_server.url + "/v1/embeddings", request, key=vllm_server.key)[2]
    assert one["reward_score"] == pytest.approx(direct["data"][0]["embedding"][-1], abs=1e-5)


async def test_a_judge_scores_and_its_words_stand_beside_the_score(
    make_worker: MakeWorker, judge_server: VllmServer, tmp_path: Path
) -> None:
    at_judge = at_server(judge_server, tmp_path, None, kind="Generative")
    judge = "+reward.rewardpool.judge={output:choice,labels:{correct:1,wrong:0}}"
    worker = make_worker(*at_judge, judge)
    [one] = await worker.compute_score_batch(batch_of(["123"]))
    [words] = json.loads(one["reward_extra_info"]["said"])["pool"]["words"]
    assert one["reward_score"] == {"correct": 1.0, "wrong": 0.0}[json.loads(words)]


async def test_a_function_written_for_a_judge_of_verls_own_asks_the_pool(
    make_worker: MakeWorker, judge_server: VllmServer, tmp_path: Path
) -> None:
    function = tmp_path / "judge.py"
    function.write_text(JUDGE_FUNCTION)
    overrides = at_server(judge_server, tmp_path, model_folder("policy"), kind=None)
    worker = make_worker(*overrides, f"reward.custom_reward_function.path={function}")
    [one] = await worker.compute_score_batch(batch_of(["123"]))
    turns = [{"role": "user", "content": "123"}]
    request = {"model": judge_server.served_name, "messages": turns, "max_tokens": 8, "temperature": 0}
    direct = http("POST", judge_server.url + "/v1/chat/completions", request, key=judge_server.key)[2]
    assert one["reward_extra_info"]["written"] == direct["choices"][0]["message"]["content"]


async def test_a_function_that_gives_no_number_is_an_error_and_no_reward(
    make_worker: MakeWorker, function_pool: str, tmp_path: Path
) -> None:
    function = tmp_path / "nothing.py"
    function.write_text("def compute_score(**_of_verl):\n    return float('nan')\n")
    custom = f"reward.custom_reward_function.path={function}"
    worker = make_worker(MANAGER, f"+reward.pool={function_pool}", QUIETLY, custom)
    with pytest.raises(FunctionFailedError, match="not a finite number"):
        await worker.compute_score(batch_of(["123"]))


async def test_a_sample_that_cannot_be_scored_raises_and_never_counts_as_zero(
    make_worker: MakeWorker, function_pool: str
) -> None:
    worker = make_worker(MANAGER, f"+reward.pool={function_pool}", QUIETLY)
    data = batch_of(["123"])
    data.non_tensor_batch["extra_info"][0]["handle"] = object()
    with pytest.raises(InvalidSampleError, match="JSON"):
        await worker.compute_score(data)


async def test_a_function_that_fails_is_never_the_policys_penalty(make_worker: MakeWorker, function_pool: str) -> None:
    penalty = "+reward.rewardpool.on_failure.policy.penalty=-1"
    worker = make_worker(MANAGER, f"+reward.pool={function_pool}", QUIETLY, penalty)
    with pytest.raises(FunctionFailedError):
        await worker.compute_score_batch(batch_of(["", "123"]))


async def test_a_pool_that_nobody_knows_is_named(make_worker: MakeWorker) -> None:
    worker = make_worker(MANAGER, "+reward.pool=rl/missing")
    with pytest.raises(PoolNotFoundError, match="rl/missing"):
        await worker.compute_score(batch_of(["123"]))
