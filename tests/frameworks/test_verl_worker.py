"""verl's own RewardLoopWorker, in this process: every kind of pool through it scores as the pool does directly.

Where the pool is an engine, a FakeWorker stands in for it; `tests/trainer` has real ones behind the client.
"""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import transformers
from support.fake_worker import Behaviour, FakeWorker, says, score_of
from support.fleet import SERVED_NAME
from support.local_machine import POOL, LocalMachine
from support.reward_functions import expected_score
from support.verl_job import batch_of, verl_config
from support.vllm_server import quickstart_pool
from verl.experimental.reward_loop import RewardLoopWorker

from rewardpool._client.threads.shared import shared
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


def at_server(server: FakeWorker, folder: Path, model: Path | None, *, kind: str | None) -> list[str]:
    """Overrides for a pool that is known by its URL."""
    key_file = folder / "key"
    key_file.write_text("key")
    settings = {"url": server.url, "key_file": key_file, "served_name": SERVED_NAME}
    settings |= {name: value for name, value in {"tokenizer": model, "type": kind}.items() if value is not None}
    return [MANAGER, *(f"+reward.rewardpool.{name}={value}" for name, value in settings.items())]


def writes(text: str) -> Behaviour:
    """A judge that writes that."""
    return says(json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}))


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


async def test_a_reward_model_is_sent_the_tokens_of_its_own_template(make_worker: MakeWorker, tmp_path: Path) -> None:
    model = model_folder("reward-model")
    turns = [{"role": "user", "content": "12"}, {"role": "assistant", "content": "123"}]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    ids = tokenizer(tokenizer.apply_chat_template(turns, tokenize=False), add_special_tokens=False)["input_ids"]
    async with FakeWorker() as server:
        worker = make_worker(*at_server(server, tmp_path, model, kind="Discriminative"))
        [one] = await worker.compute_score_batch(batch_of(["123"]))
    assert (SERVED_NAME, ids) in [(request["model"], request["input"]) for request in server.requests]
    assert one["reward_score"] == score_of(ids)


async def test_a_judge_scores_and_its_words_stand_beside_the_score(make_worker: MakeWorker, tmp_path: Path) -> None:
    judge = "+reward.rewardpool.judge={output:choice,labels:{correct:1,wrong:0}}"
    async with FakeWorker(writes('"correct"')) as server:
        worker = make_worker(*at_server(server, tmp_path, None, kind="Generative"), judge)
        [one] = await worker.compute_score_batch(batch_of(["123"]))
    assert json.loads(one["reward_extra_info"]["said"])["pool"]["words"] == ['"correct"']
    assert one["reward_score"] == 1.0


async def test_a_function_written_for_a_judge_of_verls_own_asks_the_pool(
    make_worker: MakeWorker, tmp_path: Path
) -> None:
    function = tmp_path / "judge.py"
    function.write_text(JUDGE_FUNCTION)
    async with FakeWorker(writes("seven")) as server:
        overrides = at_server(server, tmp_path, model_folder("policy"), kind=None)
        worker = make_worker(*overrides, f"reward.custom_reward_function.path={function}")
        [one] = await worker.compute_score_batch(batch_of(["123"]))
    [asked] = server.requests
    assert (asked["model"], asked["messages"]) == (SERVED_NAME, [{"role": "user", "content": "123"}])
    assert (one["reward_score"], one["reward_extra_info"]["written"]) == (5.0, "seven")


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
