"""The frameworks' own code that asks teachers, answered through the gateway.

The engine is a stand-in, below RewardPool's wire: a FakeWorker with a teacher of fifty tokens.

TRL's client and AReaL's requests and parsers are those of the packages. slime, miles, prime-rl and SkyRL are on no
package index: $SLIME_SOURCE, $MILES_SOURCE, $PRIME_RL_SOURCE and $SKYRL_SOURCE are the paths of their sources.
"""

import ast
import asyncio
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
import torch
from support.local_pool import on_this_machine
from support.teacher_gateway import teacher_gateway
from support.tiny_teacher import computed
from trl.generation import vllm_client

from rewardpool_api.teacher_wire import question

IDS = [3, 1, 4, 1, 5, 9, 2, 6]
OTHER = [2, 7, 1, 8]
RESPONSE = 5
"""Tokens of IDS that the student wrote."""
Opening = Callable[..., Any]


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opening:
    on_this_machine(monkeypatch, tmp_path)
    return partial(teacher_gateway, tmp_path)


def url_of(client: Any) -> str:
    """With a key as all of these can send it."""
    return str(client.make_url("")).rstrip("/").replace("://", "://trainer:secret@")


def expected(token_ids: list[int], *, last: int) -> list[float]:
    return computed(question(token_ids)).logprobs.tolist()[-last:]


# TRL.


@pytest.mark.parametrize("k", [1, 3])
async def test_trls_client_reads_its_own_tokens_and_the_most_likely_ones(
    gateway: Opening, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    # It asks for vLLM's package for the sake of weights, which a teacher has none of.
    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda: True)
    async with gateway(key="secret") as (client, _):

        def use() -> Any:
            own = vllm_client.VLLMClient(base_url=url_of(client))
            assert own.model == "skywork"
            return own.get_sequence_logprobs([IDS, OTHER], [len(IDS) - RESPONSE, 1], top_logprobs=k)

        found = await asyncio.to_thread(use)
    assert [[one for [one] in rows] for rows in found["actual_logprobs"]] == [
        expected(IDS, last=RESPONSE),
        expected(OTHER, last=3),
    ]
    values = computed(question(IDS, start=len(IDS) - RESPONSE, top_k=k))
    assert [one for row in found["logprob_token_ids"][0] for one in row] == values.top_ids.tolist()
    assert [one for row in found["logprobs"][0] for one in row] == values.top_logprobs.tolist()


async def test_trls_client_shows_why_it_was_refused(gateway: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda: True)
    async with gateway(key="secret") as (client, _):

        def use() -> None:
            own = vllm_client.VLLMClient(base_url=url_of(client))
            with pytest.raises(Exception, match=r"400, .*temperature is 0\.9, and must be 0 or 1"):
                own.get_sequence_logprobs([IDS], [1], top_logprobs=1, temperature=0.9)

        await asyncio.to_thread(use)


@pytest.mark.long  # its import takes 15 s
async def test_trls_rollout_worker_finds_the_model_and_reads_every_position(
    gateway: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.experimental.async_distillation import async_rollout_worker as trl

    monkeypatch.setattr(trl, "logger", logging.getLogger("trl"))  # accelerate's wants a trainer
    loop = cast(Any, object.__new__(trl._AsyncRolloutLoop))
    loop.__dict__ |= {"request_timeout": 20, "teacher_top_k": 2, "teacher_temperature": 1.0, "teacher_model_names": {}}
    async with gateway(key="secret") as (client, _), aiohttp.ClientSession() as session:
        loop.session, loop.teacher_server_urls = session, {"maths": url_of(client)}
        await loop._resolve_teacher_model_names()
        prompt, completion = IDS[:-RESPONSE], IDS[-RESPONSE:]
        ids, logprobs = await loop._score_with_teacher(
            prompt, completion, loop.teacher_server_urls["maths"], loop.teacher_model_names["maths"]
        )
    values = computed(question(IDS, start=len(prompt), top_k=2))
    for row, (found, numbers) in enumerate(zip(ids, logprobs, strict=True)):
        assert found[:2] == values.top_ids[2 * row : 2 * row + 2].tolist()
        assert numbers[found.index(completion[row])] == values.logprobs[row]
    assert len(ids) == RESPONSE


# AReaL.


def methods(package: str, file: str, *names: str, **known: Any) -> Any:
    """Methods of a class of an installed package, without the rest of it, which needs GPUs' libraries."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return functions(Path(spec.submodule_search_locations[0]) / file, *names, **known)


def functions(file: Path, *names: str, **known: Any) -> Any:
    """Functions and constants of a source file by their names."""
    nodes = ast.walk(ast.parse(file.read_text()))
    found = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in names]
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    tree = ast.fix_missing_locations(ast.Module([future, *found], []))
    space: dict[str, Any] = {"Any": Any, **known}
    exec(compile(tree, str(file), "exec"), space)
    return SimpleNamespace(**{name: space[name] for name in names})


@pytest.mark.parametrize("file", ["engine/sglang_remote.py", "engine/vllm_remote.py"])
async def test_areals_request_gives_areals_parser_each_token_of_the_response(gateway: Opening, file: str) -> None:
    own = methods("areal", file, "build_score_request", "parse_score_response", HttpRequest=SimpleNamespace)
    request = own.build_score_request(None, IDS, RESPONSE, False, 0)
    async with gateway() as (client, _), client.post(request.endpoint, json=request.payload) as answer:
        assert answer.status == 200, await answer.text()
        assert own.parse_score_response(None, await answer.json(), RESPONSE) == expected(IDS, last=RESPONSE)


# slime, miles, prime-rl and SkyRL.


def source(project: str, file: str) -> Path:
    variable = f"{project.upper().replace('-', '_')}_SOURCE"
    if variable not in os.environ:
        pytest.skip(f"{project} is on no package index; set {variable} to the path of its source")
    return Path(os.environ[variable]) / file


def module(file: Path, monkeypatch: pytest.MonkeyPatch, **stand_ins: dict[str, Any]) -> ModuleType:
    """A module by its file, with stand-ins for modules of the project that need an engine."""
    for name, content in stand_ins.items():
        stand_in = ModuleType(name.replace("__", "."))
        stand_in.__dict__.update(content)
        monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    spec = importlib.util.spec_from_file_location("of_the_source", file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def sample(**fields: Any) -> Any:
    made = SimpleNamespace(
        tokens=IDS, response_length=RESPONSE, multimodal_inputs=None, metadata={}, teacher_log_probs=None, **fields
    )
    made.get_reward_value = lambda _: made.reward
    return made


async def test_slime_reads_each_token_of_the_response(gateway: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    slime = module(
        source("slime", "slime/rollout/on_policy_distillation.py"),
        monkeypatch,
        slime__utils__processing_utils={"encode_image_for_rollout_engine": None},
        slime__utils__types={"Sample": object},
    )
    one = sample()
    async with gateway(key="secret") as (client, _):
        args = SimpleNamespace(rm_url=url_of(client) + "/generate", rollout_temperature=1.0)
        one.reward = await slime.reward_func(args, one)
        slime.post_process_rewards(args, [one])
        assert one.teacher_log_probs.tolist() == expected(IDS, last=RESPONSE)
        args.rollout_temperature = 0.8
        with pytest.raises(aiohttp.ClientResponseError, match=r"temperature is 0\.8, and must be 0 or 1"):
            await slime.reward_func(args, one)


@pytest.mark.parametrize(
    "options", [{}, {"opd_log_prob_top_k": 2}, {"opd_log_prob_top_k": 2, "opd_topk_per_position": True}]
)
async def test_miles_reads_each_token_and_the_students_ids_of_all_positions_or_of_each(
    gateway: Opening, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    file = source("miles", "miles/rollout/on_policy_distillation.py")
    miles = module(file, monkeypatch, miles__utils__types={"Sample": object})
    top = [[[-0.5, 7, None], [-1.5, 8, None]], *[[[-0.5, token, None], [-1.0, 9, None]] for token in range(4)]]
    one = sample(opd_reverse_kl=None)
    one.metadata = {"opd_student_top_logprobs": top, "opd_teacher": "maths"}
    async with gateway(key="secret") as (client, worker):
        args = SimpleNamespace(opd_teacher_urls=[f"maths={url_of(client)}/generate"], **options)
        one.reward = await miles.reward_func(args, one)
        miles.post_process_rewards(args, [one])
    if not options:
        assert one.teacher_log_probs.tolist() == expected(IDS, last=RESPONSE)
        return
    ids = [[entry[1] for entry in row] for row in top]
    values = computed(question(IDS, start=len(IDS) - RESPONSE, ids=ids)).ids_logprobs.tolist()
    for row, entries in enumerate(top):
        logprobs = torch.tensor([entry[0] for entry in entries])
        weights = torch.softmax(logprobs, dim=0)
        kl = (weights * (logprobs - torch.tensor(values[2 * row : 2 * row + 2]))).sum()
        assert one.opd_reverse_kl[row].item() == pytest.approx(kl.item(), rel=1e-5)
    width = worker.requests[0]["session_params"]["rewardpool"]["ids_per_row"]
    assert width == (2 if "opd_topk_per_position" in options else len({token for row in ids for token in row}))


async def test_prime_rl_reads_each_token(gateway: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    file = source("prime-rl", "src/prime_rl/utils/client.py")
    import httpx
    from openai import AsyncOpenAI

    own = functions(file, "prefill_logprobs", httpx=httpx, AsyncOpenAI=AsyncOpenAI)
    # vLLM's model of an answer reads these keys as they come.
    read = lambda content: SimpleNamespace(**json.loads(content))  # noqa: E731
    protocol = ModuleType("vllm.entrypoints.scale_out.token_in_token_out.protocol")
    protocol.GenerateResponse = SimpleNamespace(model_validate_json=read)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, protocol.__name__, protocol)
    async with gateway(key="secret") as (client, _):
        openai = AsyncOpenAI(base_url=str(client.make_url("/v1")), api_key="secret")
        found = await own.prefill_logprobs(openai, "skywork", IDS)
    assert found == [0.0, *expected(IDS, last=len(IDS) - 1)]


async def test_skyrl_reads_each_token_and_the_most_likely_ones(gateway: Opening) -> None:
    own = functions(source("SkyRL", "skyrl/backends/utils.py"), "convert_vllm_prompt_logprobs")
    sampling = {"n": 1, "logprobs": 0, "output_kind": 2, "prompt_logprobs": 2, "max_tokens": 1, "temperature": 1.0}
    request = {"sampling_params": sampling, "model": "skywork", "token_ids": IDS}
    async with gateway() as (client, _), client.post("/inference/v1/generate", json=request) as answer:
        assert answer.status == 200, await answer.text()
        said = await answer.json()
    logprobs, top = own.convert_vllm_prompt_logprobs(IDS, said["prompt_logprobs"], topk=2)
    values = computed(question(IDS, top_k=2))
    assert logprobs == [None, *values.logprobs]
    assert [pair for row in top[1:] for pair in row] == [*zip(values.top_ids, values.top_logprobs, strict=True)]
