"""A teacher's worker, with stand-ins of vLLM's engine and of SGLang's route behind the score middleware.

What the real ones answer is tested in tests/engines/test_teachers.py.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.asgi import Reply, ask
from support.tiny_teacher import VOCABULARY, as_sglang, as_vllm, computed
from support.vllm_beside import vllm_beside

from rewardpool_api import teacher_wire
from rewardpool_api.contract import CallerError, parse_answer
from rewardpool_api.teacher_wire import SequenceQuestion, parse_values, question
from rewardpool_worker.engine_side.middleware.engine import PROBE_IDS
from rewardpool_worker.engine_side.middleware.routes import ROUTED_PATHS
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings

__all__ = ["vllm_beside"]

pytestmark = pytest.mark.usefixtures("vllm_beside")
ENGINES = ["vllm", "sglang"]


class Engine:
    """Either engine; `spoil` changes what it gives, and `refuses` is SGLang's complaint or vLLM's error."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spoil: Callable[[Any], Any] = lambda given: given
        self.refuses: Exception | None = None
        self.asked: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.was_told_to_stop = False

    async def generate(self, prompt: Any, sampling: Any, request_id: str) -> AsyncIterator[Any]:
        """As vLLM's engine."""
        self.asked.append((prompt, sampling))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.was_told_to_stop = True
            raise
        if self.refuses is not None:
            raise self.refuses
        flat = as_vllm(prompt["prompt_token_ids"], sampling["prompt_logprobs"])
        yield SimpleNamespace(prompt_logprobs=self.spoil(flat))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, content = 200, {"data": [{"id": "teacher", "max_model_len": 27}]}
        if scope["path"] == "/generate":
            self.asked.append(json.loads(body))
            status, content = 200, self.spoil(as_sglang(self.asked[-1]))
            if self.refuses is not None:
                status, content = 400, {"error": {"message": str(self.refuses)}}
        elif scope["path"] != "/v1/models":
            status, content = 404, {"detail": "Not Found"}
        raw = json.dumps(content).encode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": raw})

    @property
    def app(self) -> Any:
        """As the scope has it."""
        if self.name == "sglang":
            return SimpleNamespace(state=SimpleNamespace(vocabulary_size=VOCABULARY))
        config = SimpleNamespace(get_vocab_size=lambda: VOCABULARY)
        state = SimpleNamespace(vllm_config=SimpleNamespace(model_config=config), engine_client=self)
        return SimpleNamespace(state=state)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(request.param)


def worker(engine: Engine, **settings_: Any) -> Any:
    settings = Settings(
        served_name="teacher", model_type="Teacher", engine=engine.name, top_k=8, revision="5f1c0de5", **settings_
    )
    middleware = ScoreMiddleware(engine, settings=settings)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await middleware({**scope, "app": engine.app}, receive, send)

    return application


async def answer(engine: Engine, asked: SequenceQuestion, **fields: Any) -> Reply:
    content = {**asked.to_wire(), **fields}
    return await ask(worker(engine), "POST", "/generate", content, x_correlation_id="request-7")


def refusal(reply: Reply) -> CallerError:
    assert reply.status == 200
    found = parse_answer(reply.body, count=1)
    assert isinstance(found, CallerError)
    return found


@pytest.mark.parametrize(
    "asked",
    [
        question([3, 1]),
        question([3, 1, 4, 1, 5, 9], top_k=1),
        question([3, 1, 4, 1, 5, 9], start=3, top_k=8, model="teacher"),
        question([*range(20)], start=19),
    ],
)
async def test_every_position_from_start_on_has_the_models_own_number(engine: Engine, asked: SequenceQuestion) -> None:
    reply = await answer(engine, asked)
    said = reply.json()
    assert reply.status == 200
    assert parse_values(said, asked) == computed(asked)
    assert (said["model"], said["request_id"], said["revision"]) == ("teacher", "request-7", "5f1c0de5")


async def test_vllm_is_asked_for_flat_lists_and_writes_nothing_out() -> None:
    engine = Engine("vllm")
    await answer(engine, question([3, 1, 4], top_k=2))
    prompt, sampling = engine.asked[0]
    assert prompt == {"prompt_token_ids": [3, 1, 4]}
    assert (sampling["prompt_logprobs"], sampling["flat_logprobs"], sampling["detokenize"]) == (2, True, False)
    assert (sampling["max_tokens"], sampling["output_kind"]) == (1, "final")


async def test_sglang_is_asked_from_the_first_token_on_and_generates_nothing() -> None:
    engine = Engine("sglang")
    await answer(engine, question([3, 1, 4], start=2, ids=[[7, 7]]))
    assert engine.asked[0]["logprob_start_len"] == 0
    assert engine.asked[0]["sampling_params"] == {"max_new_tokens": 0}
    assert engine.asked[0]["token_ids_logprob"] == [7]


async def test_sglang_gives_the_numbers_of_the_ids_that_each_row_names() -> None:
    asked = question([3, 1, 4, 1], start=2, ids=[[7, 9], [9, 2]], top_k=3)
    assert parse_values((await answer(Engine("sglang"), asked)).json(), asked) == computed(asked)


async def test_vllm_refuses_given_ids_by_name() -> None:
    found = refusal(await answer(Engine("vllm"), question([1, 2], ids=[[3]])))
    assert "ids must not be set: vllm has no" in found.message


def test_sglang_is_not_asked_for_more_different_ids_than_it_can_compute() -> None:
    from rewardpool_worker.engine_side.middleware.teacher_engines import to_sglang

    with pytest.raises(teacher_wire.BadRequestError, match="ids has 1025 different token ids over 1025 positions"):
        to_sglang(question(range(1026), ids=[[one] for one in range(1025)]))


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (question([7]), "invalid_sample", "send at least 2"),
        (question([1, 2, 3], start=3), "invalid_sample", "start is 3, and must be 1 to 2"),
        (question([1, 2, 3], start=-2), "invalid_sample", "start is -2"),
        (question([1, VOCABULARY]), "invalid_sample", "input_ids[1] is 50, and the model has the tokens 0 to 49"),
        (question([1, 2], top_k=9), "invalid_sample", "top_k is 9, and this teacher gives 0 to 8"),
        (question([1, 2], top_k=-1), "invalid_sample", "top_k is -1"),
        (question([1] * 27), "sample_too_long", "input_ids has 27 tokens"),
        (question([1, 2], model="another"), "wrong_model", "there is no model 'another' here"),
    ],
)
async def test_what_it_cannot_answer_never_reaches_the_engine(
    engine: Engine, asked: SequenceQuestion, code: str, said: str
) -> None:
    found = refusal(await answer(engine, asked))
    assert found.code == code
    assert said in found.message
    assert engine.asked == []


async def in_sglangs_words(engine: Engine, **fields: Any) -> Reply:
    plain = {"return_logprob": True, "logprob_start_len": 0, "sampling_params": {"max_new_tokens": 0}}
    return await ask(worker(engine), "POST", "/generate", {"input_ids": [3, 1, 4, 1], **plain, **fields})


async def test_a_request_in_sglangs_words_is_answered_in_them(engine: Engine) -> None:
    said = (await in_sglangs_words(engine, top_logprobs_num=2)).json()
    found = computed(question([3, 1, 4, 1], top_k=2))
    own = [[logprob, token, None] for logprob, token in zip(found.logprobs, found.token_ids, strict=True)]
    assert said["meta_info"]["input_token_logprobs"] == [[None, 3, None], *own]
    assert [row[0][:2] for row in said["meta_info"]["input_top_logprobs"][1:]] == [
        [logprob, token] for logprob, token in zip(found.top_logprobs[::2], found.top_ids[::2], strict=True)
    ]
    assert (said["model"], said["revision"]) == ("teacher", "5f1c0de5")


async def test_what_is_wrong_in_sglangs_words_is_refused_by_their_names(engine: Engine) -> None:
    found = refusal(await in_sglangs_words(engine, top_logprobs_num=9))
    assert found.code == "invalid_sample"
    assert "top_logprobs_num is 9, and this teacher gives 0 to 8" in found.message
    assert "input_ids[1] is 50, and the model" in refusal(await in_sglangs_words(engine, input_ids=[1, 50])).message
    assert engine.asked == []


async def test_vllm_refuses_sglangs_given_ids_by_their_name() -> None:
    found = refusal(await in_sglangs_words(Engine("vllm"), token_ids_logprob=[7]))
    assert "token_ids_logprob must not be set: vllm has no" in found.message


async def test_an_answer_names_the_vocabulary_whatever_the_chat_template(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 1}}}')
    digests = []
    for template in ("one", "another"):
        (tmp_path / "chat_template.jinja").write_text(template)
        application = worker(engine, model_path=str(tmp_path))
        said = (await ask(application, "POST", "/generate", question([3, 1]).to_wire())).json()
        ready = (await ask(application, "GET", "/rewardpool/ready")).json()
        digests += [said["tokenizer"], ready["tokenizer"]]
    assert digests == [teacher_wire.vocabulary_digest({"a": 0, "b": 1})] * 4


async def test_a_temperature_is_refused_by_name(engine: Engine) -> None:
    found = refusal(await answer(engine, question([1, 2]), sampling_params={"temperature": 0.5}))
    assert (found.code, found.fault) == ("invalid_sample", "verifier")
    assert "sampling_params.temperature is 0.5, and must be 1" in found.message


@pytest.mark.parametrize(("engine_name", "longest"), [("vllm", 26), ("sglang", 20)])
async def test_a_sequence_may_have_as_many_tokens_as_ready_says(engine_name: str, longest: int) -> None:
    ready = (await ask(worker(Engine(engine_name)), "GET", "/rewardpool/ready")).json()
    assert ready["max_model_len"] == longest
    assert "error" not in (await answer(Engine(engine_name), question([1] * longest))).json()
    found = refusal(await answer(Engine(engine_name), question([1] * (longest + 1))))
    assert (found.length_tokens, found.limit_tokens) == (longest + 1, longest)


async def test_readiness_is_the_log_probabilities_of_real_tokens(engine: Engine) -> None:
    expected = computed(question(PROBE_IDS)).logprobs
    ready = await ask(worker(engine), "GET", "/rewardpool/ready")
    assert ready.status == 200
    assert ready.json()["probe_score"] == pytest.approx(math.fsum(expected) / len(expected))


async def test_a_teacher_whose_log_probabilities_vary_is_not_ready() -> None:
    vllm = Engine("vllm")
    assert (await ask(worker(vllm), "GET", "/rewardpool/ready")).json()["certificate"]["max_abs_diff"] == 0
    vllm.asked.clear()

    def off_from_the_third_on(flat: Any) -> Any:
        flat.logprobs = [one - (len(vllm.asked) > 2) for one in flat.logprobs]
        return flat

    vllm.spoil = off_from_the_third_on
    said = (await ask(worker(vllm), "GET", "/rewardpool/ready")).json()
    assert (said["ready"], said["code"]) == (False, "numbers_vary")
    assert "after a cache hit by 1 (" in said["reason"]


def replaced(name: str, place: int, value: Any) -> Callable[[Any], Any]:
    def spoil(flat: Any) -> Any:
        getattr(flat, name)[place] = value
        return flat

    return spoil


def shifted(flat: Any) -> Any:
    flat.token_ids = [*flat.token_ids[3:], *flat.token_ids[:3]]
    return flat


def cut(flat: Any) -> Any:
    return SimpleNamespace(
        **{name: values[:-3] if name.endswith("s") else values for name, values in vars(flat).items()}
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (replaced("logprobs", 3, float("nan")), "is nan, not a finite number"),
        (replaced("logprobs", 3, -math.inf), "is -inf, not a finite number"),
        (replaced("logprobs", 4, 9.95), "not a log-probability"),
        (replaced("logprobs", 3, -9999.0), "not a log-probability"),
        (replaced("logprobs", 3, None), "a value that is not a number"),
        (replaced("token_ids", 1, -631299312), "top_ids[0] is -631299312"),
        (replaced("token_ids", 0, 8), "row 0 belongs to the token 8"),
        (replaced("end_indices", 2, 5), "more or fewer log-probabilities than 3"),
        (shifted, "row 0 belongs to the token"),
        (cut, "vllm has"),
        (lambda _: None, "ended the request without log-probabilities"),
    ],
)
async def test_numbers_that_cannot_be_are_the_engines_fault_and_never_an_answer(
    spoil: Callable[[Any], Any], said: str
) -> None:
    engine = Engine("vllm")
    engine.spoil = spoil
    reply = await answer(engine, question([3, 1, 4, 1], top_k=2))
    assert (reply.status, reply.json()["error"]["code"]) == (500, "engine_fault")
    assert said in reply.json()["error"]["message"]


def in_meta(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def spoil(given: Any) -> Any:
        given["meta_info"][name] = change(given["meta_info"][name])
        return given

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (in_meta("input_token_logprobs", lambda rows: [[None, *row[1:]] for row in rows]), "no log-probabilities"),
        (in_meta("input_token_logprobs", lambda rows: rows[:-1]), "sglang has 3 positions, not 4"),
        (in_meta("input_token_logprobs", lambda rows: [*rows[1:], rows[0]]), "no log-probabilities: TypeError"),
        (in_meta("input_top_logprobs_shape", lambda _: [2, 2]), "of shape [2, 2] after 1, not [3, 2] after 1"),
        (in_meta("input_top_logprobs_null_prefix", lambda _: 0), "after 0"),
        (in_meta("input_top_logprobs_val_flat_b64", lambda _: "AAAA"), "3 bytes, not 4 for each value"),
        (lambda _: {"meta_info": {}}, "KeyError"),
        (lambda _: [], "holds no log-probabilities"),
    ],
)
async def test_an_answer_of_sglangs_that_is_not_whole_is_never_one_of_ours(
    spoil: Callable[[Any], Any], said: str
) -> None:
    engine = Engine("sglang")
    engine.spoil = spoil
    reply = await answer(engine, question([3, 1, 4, 1], top_k=2))
    assert (reply.status, reply.json()["error"]["code"]) == (500, "engine_fault")
    assert said in reply.json()["error"]["message"]


async def test_what_the_engine_refuses_is_the_callers_fault(engine: Engine) -> None:
    engine.refuses = ValueError("Token id 9 is banned here")
    found = refusal(await answer(engine, question([1, 9])))
    assert found.code == "invalid_sample"
    assert "Token id 9 is banned here" in found.message


async def test_an_engine_that_dies_is_no_fault_of_the_caller() -> None:
    engine = Engine("vllm")
    engine.refuses = RuntimeError("EngineCore is dead")
    reply = await answer(engine, question([1, 2]))
    assert (reply.status, reply.json()["error"]["code"]) == (500, "engine_fault")
    assert "vllm failed with RuntimeError: EngineCore is dead" in reply.json()["error"]["message"]


async def test_a_worker_whose_engine_fails_is_not_ready_and_says_why(engine: Engine) -> None:
    engine.spoil = lambda given: None if engine.name == "vllm" else {}
    ready = await ask(worker(engine), "GET", "/rewardpool/ready")
    assert ready.status == 503
    assert "log-probabilities" in ready.json()["reason"]


@pytest.mark.parametrize("path", sorted(ROUTED_PATHS - {"/generate"}))
async def test_a_teacher_answers_no_other_route_of_the_routers(engine: Engine, path: str) -> None:
    found = refusal(
        await ask(worker(engine), "POST", path, {"model": "teacher", "prompt": [1, 2], "prompt_logprobs": 1})
    )
    assert "/generate" in found.message
    assert engine.asked == []


@pytest.mark.parametrize("path", ["/inference/v1/generate", "/tokenize", "/pooling", "/flush_cache", "/shutdown"])
async def test_the_engines_own_routes_are_shut(engine: Engine, path: str) -> None:
    assert (await ask(worker(engine), "POST", path, {})).status == 404
    assert engine.asked == []


async def test_when_a_caller_hangs_up_the_engine_stops_and_nothing_is_sent() -> None:
    engine = Engine("vllm")
    engine.gate.clear()
    async with asyncio.timeout(5):
        reply = await answer(engine, question([1, 2]))
    assert (reply.status, reply.body) == (0, b"")
    assert engine.was_told_to_stop


async def test_a_request_for_another_revision_is_not_answered(engine: Engine) -> None:
    content = question([1, 2]).to_wire()
    reply = await ask(worker(engine), "POST", "/generate", content, x_correlation_id="request-7;revision=other")
    assert reply.json()["error"]["code"] == "other_revision"
    assert engine.asked == []
