"""A teacher through the gateway: vLLM's words and SGLang's, over HTTP, from FakeWorkers with a teacher of fifty tokens.

What the frameworks' own clients make of the answers is tested in tests/frameworks/test_teacher_wires.py.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient
from support.fake_worker import FakeWorker, breaks_off, refuses, says
from support.local_pool import on_this_machine
from support.teacher_gateway import teacher_gateway
from support.tiny_teacher import VOCABULARY, computed, spoilt, teaches

from rewardpool._gateway.logprobs import parse_completions
from rewardpool._gateway.opened import OpenTeacher, open_pool
from rewardpool._rewards import JobFacts
from rewardpool.errors import ConfigError
from rewardpool_api.contract import CallerError
from rewardpool_api.teacher_wire import BadRequestError, check_question, parse_request, question

IDS = [3, 1, 4, 1, 5, 9]
OTHER = [2, 7, 1]
Opening = Callable[..., Any]
Client = TestClient[Any, Any]


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opening:
    on_this_machine(monkeypatch, tmp_path)
    return partial(teacher_gateway, tmp_path)


def completions(**fields: Any) -> dict[str, Any]:
    """What TRL sends, with some fields changed."""
    return {"model": "skywork", "prompt": [IDS], "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 2, **fields}


def tokens(**sampling: Any) -> dict[str, Any]:
    """What prime-rl sends, with some parameters changed."""
    parameters = {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "prompt_logprobs": 1, **sampling}
    return {"model": "skywork", "token_ids": IDS, "sampling_params": parameters}


def sglang(**fields: Any) -> dict[str, Any]:
    """What slime sends, with some fields changed."""
    return {
        "input_ids": IDS,
        "return_logprob": True,
        "logprob_start_len": 0,
        "sampling_params": {"max_new_tokens": 0},
        **fields,
    }


async def asked(client: Client, path: str, content: Any) -> Any:
    async with client.post(path, json=content) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        return await answer.json()


async def refused(client: Client, path: str, content: Any, **options: Any) -> tuple[int, str]:
    async with client.post(path, json=content, **options) as answer:
        said = (await answer.json())["error"]
        assert answer.reason == said
        return answer.status, said


def assert_positions(found: Any, token_ids: list[int], k: int) -> None:
    """The token itself stands first, and all that rank 1 to k beside it have their ranks and numbers."""
    values = computed(question(token_ids, top_k=k))
    assert found[0] is None
    assert [int(next(iter(one))) for one in found[1:]] == token_ids[1:]
    assert [next(iter(one.values()))["logprob"] for one in found[1:]] == values.logprobs.tolist()
    for row, one in enumerate(found[1:]):
        ranked = sorted(((entry["rank"], int(token)) for token, entry in one.items()) if k else [])[:k]
        assert ranked == [*enumerate(values.top_ids[row * k : (row + 1) * k].tolist(), start=1)]
        assert {entry["rank"] for entry in one.values()} <= ({*range(1, k + 2)} if k else {None})


async def test_a_teacher_of_which_only_the_url_is_known_answers(tmp_path: Path) -> None:
    async with FakeWorker(afterwards=teaches) as worker:
        spec = {"pool": "rl/teacher", "url": worker.url, "timeout": 10}
        async with open_pool(spec, JobFacts(rank=0, ranks=1), tokenizer=None, teacher=True, path="gateway") as pool:
            assert isinstance(pool, OpenTeacher)
            assert (await pool.logprobs(question(IDS), label="one")).token_ids.tolist() == IDS[1:]


async def test_a_pool_of_another_type_is_not_taken_for_a_teacher(gateway: Opening) -> None:
    with pytest.raises(ConfigError, match="--teacher: is for a Teacher, and rl/skywork is Discriminative"):
        async with gateway(model_type="Discriminative", teacher=True):
            pass


@pytest.mark.parametrize("k", [0, 1, 8])
async def test_each_position_has_the_token_itself_first_and_then_ranks(gateway: Opening, k: int) -> None:
    async with gateway() as (client, _):
        [choice] = (await asked(client, "/v1/completions", completions(prompt_logprobs=k)))["choices"]
        assert_positions(choice["prompt_logprobs"], IDS, k)
        assert_positions(
            (await asked(client, "/inference/v1/generate", tokens(prompt_logprobs=k)))["prompt_logprobs"], IDS, k
        )


async def test_a_batch_has_a_choice_for_each_sequence_in_its_order(gateway: Opening) -> None:
    async with gateway() as (client, worker):
        answer = await asked(client, "/v1/completions", completions(prompt=[IDS, OTHER, IDS]))
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        for choice, ids in zip(answer["choices"], [IDS, OTHER, IDS], strict=True):
            assert_positions(choice["prompt_logprobs"], ids, 2)
        assert (answer["model"], len(worker.requests)) == ("skywork", 3)


async def test_areal_sends_one_list_and_no_model(gateway: Opening) -> None:
    areal = {"prompt": IDS, "max_tokens": 1, "temperature": 0.0, "logprobs": 1, "prompt_logprobs": 1, "echo": True}
    async with gateway() as (client, _):
        [choice] = (await asked(client, "/v1/completions", areal))["choices"]
        assert_positions(choice["prompt_logprobs"], IDS, 1)


async def test_sglangs_words_are_answered_in_them_with_ids_of_each_position(gateway: Opening) -> None:
    positions: list[list[int]] = [[], [], [7], [2, 8], [], [1]]
    request = {
        "input_ids": IDS,
        "return_logprob": True,
        "logprob_start_len": 0,
        "sampling_params": {"max_new_tokens": 0},
    }
    async with gateway() as (client, _):
        meta = (await asked(client, "/generate", {**request, "token_ids_logprob_positions": positions}))["meta_info"]
    assert [item[0] for item in meta["input_token_logprobs"]] == [None, *computed(question(IDS)).logprobs]
    assert [[item[1] for item in row] for row in meta["input_token_ids_logprobs"][1:]] == positions[1:]


async def test_models_is_json_with_the_served_name_and_the_longest_sequence(gateway: Opening) -> None:
    async with gateway() as (client, _), client.get("/v1/models") as answer:
        assert answer.content_type == "application/json"
        [card] = (await answer.json())["data"]
        assert card["id"] == "skywork"
        assert "max_model_len" in card


async def test_a_worker_that_fails_costs_no_answer(gateway: Opening) -> None:
    async with gateway(breaks_off, says("broken", status=500), spoilt(rows=1)) as (client, worker):
        [choice] = (await asked(client, "/v1/completions", completions()))["choices"]
        assert_positions(choice["prompt_logprobs"], IDS, 2)
        assert len(worker.requests) == 4


TOP_K = CallerError(code="invalid_sample", message="top_k is 9, and this teacher gives 0 to 8 tokens a row")


async def test_a_workers_refusal_is_said_by_the_names_of_the_request_also_in_the_reason(gateway: Opening) -> None:
    async with gateway(afterwards=refuses(TOP_K)) as (client, _):
        status, said = await refused(client, "/v1/completions", completions(prompt=[IDS, OTHER], prompt_logprobs=9))
        assert (status, "prompt_logprobs is 9, and this teacher gives 0 to 8" in said) == (422, True)
        status, said = await refused(client, "/inference/v1/generate", tokens(prompt_logprobs=9))
        assert (status, "sampling_params.prompt_logprobs is 9" in said) == (422, True)


async def refuses_other_tokens(request: Any) -> Any:
    """As a worker with a model of fifty tokens."""
    found, _ = parse_request(await request.read())
    try:
        check_question(found, vocabulary=VOCABULARY)
    except BadRequestError as error:
        return await refuses(CallerError(code="invalid_sample", message=str(error)))(request)
    return await teaches(request)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("/v1/completions", completions(prompt=[IDS, [1, 2, VOCABULARY]]), "sequence 1: prompt[2] is 50"),
        ("/inference/v1/generate", {**tokens(), "token_ids": [1, VOCABULARY]}, "sequence 0: token_ids[1] is 50"),
        ("/generate", sglang(input_ids=[1, VOCABULARY]), "sequence 0: input_ids[1] is 50"),
        ("/generate", sglang(token_ids_logprob=[VOCABULARY]), "sequence 0: token_ids_logprob[0] is 50"),
    ],
)
async def test_a_token_that_the_teacher_does_not_have_is_refused_by_name(
    gateway: Opening, path: str, content: Any, said: str
) -> None:
    async with gateway(afterwards=refuses_other_tokens) as (client, _):
        status, found = await refused(client, path, content)
        assert (status, said in found, "the model has the tokens 0 to 49" in found) == (422, True, True), found


@pytest.mark.parametrize(
    ("path", "content", "status", "said"),
    [
        ("/v1/completions", completions(temperature=0.9), 400, "temperature is 0.9, and must be 0 or 1"),
        ("/v1/completions", completions(prompt="hello"), 400, "prompt is 'hello': give token ids"),
        ("/v1/completions", completions(prompt=[]), 400, "prompt is []: give token ids"),
        ("/v1/completions", completions(prompt=[[1, 2], [1, -2]]), 400, "prompt[1]: token_ids[1] is -2"),
        ("/v1/completions", completions(prompt=[[1]]), 422, "prompt has 1 tokens"),
        ("/v1/completions", completions(prompt_logprobs=None), 400, "prompt_logprobs is None: give the number"),
        ("/v1/completions", completions(prompt_logprobs=-1), 400, "prompt_logprobs is -1: give the number"),
        ("/v1/completions", completions(max_tokens=16), 400, "max_tokens is 16, and must be 0 or 1"),
        ("/v1/completions", completions(truncate_prompt_tokens=5), 400, "truncate_prompt_tokens is 5"),
        ("/v1/completions", completions(best_of=2), 400, "best_of is 2, and must not be set"),
        ("/v1/completions", completions(n=2), 400, "n is 2, and must not be set"),
        ("/v1/completions", completions(stream=True), 400, "stream is True"),
        ("/v1/completions", completions(model="other"), 404, "model is 'other', and 'skywork' is served here"),
        (
            "/inference/v1/generate",
            {**tokens(), "model": "other"},
            404,
            "model is 'other', and 'skywork' is served here",
        ),
        ("/generate", sglang(model="other"), 404, "model is 'other', and 'skywork' is served here"),
        ("/generate", sglang(model=7), 400, "model must be a text, not 7"),
        ("/v1/completions", [1], 400, "the request is not a JSON object"),
        ("/inference/v1/generate", tokens(temperature=0.9), 400, "sampling_params.temperature is 0.9"),
        ("/inference/v1/generate", tokens(prompt_logprob_token_ids=[[1]]), 400, "prompt_logprob_token_ids is [[1]]"),
        ("/inference/v1/generate", {**tokens(), "features": {"a": 1}}, 400, "features is {'a': 1}"),
        ("/inference/v1/generate", {"token_ids": IDS}, 400, "sampling_params must be an object"),
        ("/generate", {"input_ids": IDS}, 400, "return_logprob is None, and must be true"),
        ("/generate", question(IDS).to_wire(), 400, "session_params.rewardpool is for a pool's routers"),
        ("/get_reward", {}, 404, "rl/skywork is a Teacher, which gives no reward"),
        ("/run_code", {"code": "1", "language": "python"}, 404, "rl/skywork is a Teacher"),
    ],
)
async def test_what_is_not_followed_is_refused_by_name(
    gateway: Opening, path: str, content: Any, status: int, said: str
) -> None:
    async with gateway() as (client, worker), client.post(path, json=content) as answer:
        text = await answer.text()
        assert (answer.status, said in json.dumps(json.loads(text), ensure_ascii=False)) == (status, True), text
        assert worker.requests == []


async def test_a_key_may_come_in_the_url_as_slime_trl_and_areal_send_it(gateway: Opening) -> None:
    async with gateway(key="secret") as (client, _):
        with_key = str(client.make_url("/v1/completions")).replace("://", "://trainer:secret@")
        async with aiohttp.ClientSession() as session, session.post(with_key, json=completions()) as answer:
            assert answer.status == 200
        async with client.get("/v1/models") as answer:
            assert answer.status == 401


async def test_a_pool_of_another_type_gives_no_log_probabilities(gateway: Opening) -> None:
    async with gateway(model_type="Function") as (client, _):
        status, said = await refused(client, "/v1/completions", completions())
        assert (status, said) == (404, "the pool is no Teacher, and only those give log-probabilities")


@pytest.mark.parametrize(
    ("student", "option"),
    [
        ({"student": SimpleNamespace(get_vocab=lambda: {"a": 0})}, "--policy-tokenizer"),
        ({"vocabulary": "fedcba9876543210"}, "--vocabulary"),
    ],
)
async def test_a_student_with_another_vocabulary_is_refused_at_the_start(
    gateway: Opening, student: dict[str, Any], option: str
) -> None:
    known = {
        "revision": "5f1c0de5",
        "source": "hf://org/teacher",
        "servedName": "skywork",
        "tokenizer": "0123456789abcdef",
    }
    with pytest.raises(ConfigError, match=f"{option}: has the vocabulary .* has 0123456789abcdef"):
        async with gateway(**student, revisions=[known]):
            pass


async def test_no_answer_of_another_vocabulary_than_the_students_is_passed_on(gateway: Opening) -> None:
    async with gateway(vocabulary="fedcba9876543210") as (client, worker):
        worker.tokenizer = "fedcba9876543210"
        await asked(client, "/v1/completions", completions())
        worker.tokenizer = "0123456789abcdef"
        status, said = await refused(client, "/v1/completions", completions())
    assert status == 503
    assert "whose model has another tokenizer than the one that wrote the sample" in said


async def test_what_is_no_digest_of_a_vocabulary_is_refused_at_the_start(gateway: Opening) -> None:
    with pytest.raises(ConfigError, match=r"--vocabulary: must be a digest by .*, not 'qwen3'"):
        async with gateway(vocabulary="qwen3"):
            pass


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_type": "Function"}, "--vocabulary: is for a Teacher, and rl/skywork is Function; leave it out"),
        ({"student": "org/student"}, "--vocabulary: is for a student without --policy-tokenizer"),
    ],
)
async def test_a_vocabulary_that_means_nothing_is_refused(gateway: Opening, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        async with gateway(vocabulary="fedcba9876543210", **fields):
            pass


def test_a_request_may_have_so_many_sequences() -> None:
    with pytest.raises(BadRequestError, match="prompt has 4097 sequences, and one request may have 4096"):
        parse_completions(json.dumps(completions(prompt=[[1, 2]] * 4097)).encode())


def test_all_sequences_of_a_request_may_have_as_many_values_as_one() -> None:
    with pytest.raises(BadRequestError, match=r"prompt has 100 sequences .* 4510000 values, .* at most 4194304: send"):
        parse_completions(json.dumps(completions(prompt=[[1] * 1101] * 100, prompt_logprobs=40)).encode())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer": "org/model"}, "--tokenizer: is for a pool that scores, and .* is a Teacher"),
        ({"with_parts": True}, "--with-parts: is for a pool that scores, and .* is a Teacher"),
    ],
)
async def test_options_of_rewards_are_refused_for_a_teacher(
    gateway: Opening, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with gateway(**settings):
            pass
