"""The score middleware around FakeEngine: an ASGI application in vLLM's or SGLang's place that answers what it is told.

What vLLM itself answers is tested on the real one, in test_real_vllm.py.
"""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.asgi import ask

from rewardpool_api import names
from rewardpool_api.contract import ANY_MODEL, CHAT_PATH, CallerError, parse_answer
from rewardpool_api.names import ENV_WORKER
from rewardpool_worker.engine_side.middleware.checkpoint import Checkpoint
from rewardpool_worker.engine_side.middleware.complaints import parse_too_long
from rewardpool_worker.engine_side.middleware.errors import InvalidRequestError
from rewardpool_worker.engine_side.middleware.keys import KeyFile
from rewardpool_worker.engine_side.middleware.requests import parse_request
from rewardpool_worker.engine_side.middleware.routes import ROUTED_PATHS
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings

MODELS = {"data": [{"id": "rm", "max_model_len": 512}]}
VLLM_TOO_LONG = (
    "This model's maximum context length is 512 tokens. However, your prompt contains at least 513 input tokens, which "
    "exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
    "(parameter=input_tokens, value=513)"
)
VLLM_TOO_MANY_CHARACTERS = (
    "This model's maximum context length is 512 tokens. However, your prompt contains 15000 characters (more than 6656 "
    "characters, which is the upper bound for 512 input tokens). Please reduce the length of the input prompt. "
    "(parameter=input_text, value=15000)"
)
SGLANG_TOO_LONG = "The input (600 tokens) is longer than the model's context length (512 tokens)."


def classification(*logits: Any) -> dict[str, Any]:
    return {"data": [{"index": i, "probs": [logit]} for i, logit in enumerate(logits)], "usage": {"total_tokens": 3}}


def complaint(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "code": 400}}


class FakeEngine:
    """Answers each path with what the test put there, and keeps what it was asked."""

    def __init__(self, **answers: tuple[int, Any]) -> None:
        self.answers = {"/v1/models": (200, MODELS), "/health": (200, {})}
        self.answers |= {"/" + name.replace("__", "/"): answer for name, answer in answers.items()}
        self.asked: list[tuple[str, Any]] = []
        self.content_type = b"text/plain"
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.asked.append((scope["path"], json.loads(body) if body else None))
        await self.gate.wait()
        status, content = self.answers.get(scope["path"], (404, {"detail": "Not Found"}))
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = [(b"content-type", self.content_type)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": raw})

    def count(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def worker(fake: FakeEngine, *, clock: Clock | None = None, **settings: Any) -> ScoreMiddleware:
    given = Settings(served_name="rm", certificate_seconds=0, **settings)
    return ScoreMiddleware(fake, settings=given, clock=clock or Clock())


async def score(fake: FakeEngine, given: Any = "hello", **settings: Any) -> Any:
    return await ask(worker(fake, **settings), "POST", "/v1/embeddings", {"model": "rm", "input": given})


# Scores


async def test_a_raw_logit_comes_back_as_embedding() -> None:
    engine = FakeEngine(classify=(200, classification(-1.5)))
    reply = await score(engine)
    assert reply.status == 200
    assert parse_answer(reply.body, count=1) == [-1.5]
    assert engine.asked == [("/classify", {"model": "rm", "input": ["hello"], "use_activation": False})]


@pytest.mark.parametrize(
    ("given", "samples"),
    [
        ("a text", ["a text"]),
        (["one", "two"], ["one", "two"]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_all_four_input_forms_are_lists_of_samples(given: Any, samples: Any) -> None:
    assert parse_request(json.dumps({"model": "rm", "input": given}).encode()) == ("rm", samples)


@pytest.mark.parametrize("given", [None, 3, {}, [], [[]], ["a", 1], [1.5], [-1], [True], [["a"]], [[1], "a"]])
def test_any_other_input_is_an_invalid_sample(given: Any) -> None:
    with pytest.raises(InvalidRequestError, match="`input` must be"):
        parse_request(json.dumps({"model": "rm", "input": given}).encode())


ADAPTERS = ("helpful", "safe")


@pytest.mark.parametrize("said", [{"model": "rm", "user": "adapter:safe"}, {"model": "safe"}])
async def test_an_adapter_is_chosen_by_user_or_by_model(said: dict[str, str]) -> None:
    engine = FakeEngine(classify=(200, classification(-1.5)))
    reply = await ask(worker(engine, adapters=ADAPTERS), "POST", "/v1/embeddings", {"input": "hello", **said})
    assert (reply.status, reply.json()["model"]) == (200, "safe")
    assert engine.asked == [("/classify", {"model": "safe", "input": ["hello"], "use_activation": False})]


@pytest.mark.parametrize("said", [{"model": "rm", "user": "adapter:safe"}, {"model": "safe"}])
async def test_sglang_is_told_of_an_adapter_in_a_field_of_its_own(said: dict[str, str]) -> None:
    engine = FakeEngine(v1__embeddings=(200, {"data": [{"index": 0, "embedding": [-1.5]}]}))
    worker_ = worker(engine, engine="sglang", adapters=ADAPTERS)
    reply = await ask(worker_, "POST", "/v1/embeddings", {"input": "hello", **said})
    assert (reply.status, reply.json()["model"]) == (200, "safe")
    assert engine.asked == [("/v1/embeddings", {"model": "rm", "input": ["hello"], "lora_path": "safe"})]


@pytest.mark.parametrize("said", [{}, {"user": "somebody"}])
async def test_without_an_adapter_the_base_scores(said: dict[str, str]) -> None:
    engine = FakeEngine(classify=(200, classification(-1.5)))
    reply = await ask(
        worker(engine, adapters=ADAPTERS), "POST", "/v1/embeddings", {"model": "rm", "input": "a", **said}
    )
    assert (reply.json()["model"], engine.asked[0][1]["model"]) == ("rm", "rm")


@pytest.mark.parametrize("adapters", [(), ADAPTERS])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
async def test_an_adapter_that_is_not_there_is_a_wrong_model_on_every_engine(
    engine: str, adapters: tuple[str, ...]
) -> None:
    fake = FakeEngine(classify=(200, classification(-1.5)))
    request = {"model": "rm", "input": "a", "user": "adapter:rm"}
    reply = await ask(worker(fake, engine=engine, adapters=adapters), "POST", "/v1/embeddings", request)
    error = parse_answer(reply.body, count=1)
    assert isinstance(error, CallerError)
    assert (error.code, error.served) == ("wrong_model", "rm")
    assert all(name in error.message for name in (*adapters, "'rm'"))
    assert fake.asked == []


async def test_a_worker_is_ready_when_each_adapter_has_scored_once() -> None:
    engine = FakeEngine(classify=(200, classification(-1.5)))
    worker_ = worker(engine, adapters=ADAPTERS)
    reply = await ask(worker_, "GET", names.READY_PATH)
    assert (reply.status, reply.json()["adapters"]) == (200, list(ADAPTERS))
    assert [asked["model"] for path, asked in engine.asked if path == "/classify"] == [*ADAPTERS, "rm"]


async def test_a_worker_whose_adapter_does_not_score_says_which() -> None:
    reply = await ask(worker(FakeEngine(classify=(500, {})), adapters=ADAPTERS), "GET", names.READY_PATH)
    assert reply.status == 503
    assert "the adapter helpful does not score: status 500" in reply.json()["reason"]


def application(engine: str, size: int) -> Any:
    """What a scope's `app` is in each engine, as far as the middleware looks at it."""
    if engine == "sglang":
        return SimpleNamespace(state=SimpleNamespace(vocabulary_size=size))
    model_config = SimpleNamespace(get_vocab_size=lambda: size)
    return SimpleNamespace(state=SimpleNamespace(vllm_config=SimpleNamespace(model_config=model_config)))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("given", [[100], [[1, 99], [3, 100]], [10**30], [7] * 1_000_000 + [100]], ids=range(4))
async def test_a_token_id_beyond_the_vocabulary_never_reaches_the_engine(engine: str, given: Any) -> None:
    fake = FakeEngine()
    guarded = worker(fake, engine=engine)

    async def in_application(scope: Any, receive: Any, send: Any) -> None:
        await guarded({**scope, "app": application(engine, 100)}, receive, send)

    reply = await ask(in_application, "POST", "/v1/embeddings", {"model": "rm", "input": given})
    error = parse_answer(reply.body, count=1)
    assert isinstance(error, CallerError)
    assert (reply.status, error.code, fake.asked) == (200, "invalid_sample", [])
    assert (
        f"has the token id {max(max(s) for s in given) if isinstance(given[0], list) else max(given)}" in error.message
    )


class LettersTokenizer:
    """A stand-in for a tokenizer: the token id of a letter is its code."""

    max_token_id = 200

    def encode(self, text: str) -> list[int]:
        return [code for letter in text for code in letter.encode()]


async def test_a_token_that_vllms_tokenizer_has_and_the_model_lacks_gets_no_score() -> None:
    fake = FakeEngine(classify=(200, {"data": [{"index": 0, "probs": [0.5]}]}))
    guarded = worker(fake, engine="vllm")
    app = application("vllm", 100)
    app.state.engine_client = SimpleNamespace(renderer=SimpleNamespace(tokenizer=LettersTokenizer()))

    async def in_application(scope: Any, receive: Any, send: Any) -> None:
        await guarded({**scope, "app": app}, receive, send)

    async def answer(given: Any) -> Any:
        reply = await ask(in_application, "POST", "/v1/embeddings", {"model": "rm", "input": given})
        return parse_answer(reply.body, count=1)

    refused = await answer(["ABC", "abd"])
    assert isinstance(refused, CallerError)
    assert (refused.code, fake.asked) == ("invalid_sample", [])
    assert "input 1 has the token id 100" in refused.message
    assert not isinstance(await answer("ABC"), CallerError)
    assert fake.count("/classify") == 1


@pytest.mark.parametrize(
    ("model_type", "path", "request_body"),
    [
        ("Discriminative", "/v1/embeddings", {"input": "hello"}),
        ("Generative", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
async def test_a_model_that_is_not_the_workers_own_is_refused_by_a_code_of_its_own(
    engine: str, model_type: str, path: str, request_body: dict[str, Any]
) -> None:
    fake = FakeEngine(classify=(200, {}), v1__embeddings=(200, {}), v1__chat__completions=(200, {}))
    guarded = worker(fake, engine=engine, model_type=model_type)
    reply = await ask(guarded, "POST", path, {"model": "another", **request_body})
    assert reply.json()["error"] == {
        "code": "wrong_model",
        "message": "there is no model 'another' here: this worker serves 'rm'",
        "fault": "infra",
        "served": "rm",
    }
    assert (fake.count(path), fake.count("/classify")) == (0, 0)


@pytest.mark.parametrize("served", ["rm", ""])
async def test_a_request_that_names_no_model_is_for_the_one_that_is_there(served: str) -> None:
    fake = FakeEngine(classify=(200, classification(-1.5)))
    app = ScoreMiddleware(fake, settings=Settings(served_name=served))
    reply = await ask(app, "POST", "/v1/embeddings", {"model": ANY_MODEL, "input": "hello"})
    assert parse_answer(reply.body, count=1) == [-1.5]
    assert fake.asked[-1][1]["model"] == "rm"


async def test_a_judge_is_asked_by_its_own_name_where_the_request_names_none() -> None:
    fake = FakeEngine(v1__chat__completions=(200, {"choices": []}))
    await ask(worker(fake, model_type="Generative"), "POST", CHAT_PATH, {"model": ANY_MODEL, "messages": []})
    assert fake.asked == [(CHAT_PATH, {"model": "rm", "messages": []})]


async def test_an_engine_that_knows_no_such_model_makes_it_a_wrong_model() -> None:
    fake = FakeEngine(classify=(404, complaint("The model `x` does not exist.")))
    app = ScoreMiddleware(fake, settings=Settings())
    reply = await ask(app, "POST", "/v1/embeddings", {"model": "x", "input": "hello"})
    assert reply.json()["error"]["code"] == "wrong_model"


@pytest.mark.parametrize("name", ["rm", "adapter", "rm:adapter"])
async def test_sglang_serves_its_model_and_the_adapters_it_lists(name: str) -> None:
    scored = {"data": [{"index": 0, "embedding": [0.5]}]}
    models = {"data": [{"id": "rm"}, {"id": "adapter"}]}
    fake = FakeEngine(v1__models=(200, models), v1__embeddings=(200, scored))
    reply = await ask(worker(fake, engine="sglang"), "POST", "/v1/embeddings", {"model": name, "input": "hello"})
    assert parse_answer(reply.body, count=1) == [0.5]


async def test_scores_come_back_in_the_order_of_the_samples() -> None:
    shuffled = {"data": [{"index": 1, "probs": [2.0]}, {"index": 0, "probs": [1.0]}]}
    reply = await score(FakeEngine(classify=(200, shuffled)), ["a", "b"])
    assert [item["embedding"] for item in reply.json()["data"]] == [[1.0], [2.0]]


async def test_sglang_is_asked_on_its_own_route_and_its_one_number_is_the_score() -> None:
    native = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.25]}], "usage": {}}
    engine = FakeEngine(v1__embeddings=(200, native))
    reply = await score(engine, engine="sglang")
    assert parse_answer(reply.body, count=1) == [0.25]
    assert engine.asked == [("/v1/embeddings", {"model": "rm", "input": ["hello"]})]


# The engine's faults


@pytest.mark.parametrize("length", [0, 2, 64])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_several_numbers_a_sample_are_no_score(engine: str, length: int) -> None:
    said = {"data": [{"index": 0, "probs": [0.5] * length, "embedding": [0.5] * length}]}
    reply = await score(FakeEngine(classify=(200, said), v1__embeddings=(200, said)), engine=engine)
    assert reply.status == 500
    assert f"{length} numbers, and a score is exactly one" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "data",
    [
        [{"index": 0, "probs": [1.0]}, {"index": 0, "probs": [2.0]}],
        [{"index": False, "probs": [1.0]}],
        [{"index": None, "probs": [1.0]}],
        [{"index": [], "probs": [1.0]}],
        [{"index": 0, "probs": {"score": 1.0}}],
        [{"index": 0, "probs": "1"}],
        [],
    ],
)
async def test_an_answer_about_other_samples_than_the_one_sent_is_the_engines_fault(data: list[Any]) -> None:
    assert (await score(FakeEngine(classify=(200, {"data": data})))).status == 500


async def test_a_200_with_an_error_is_the_engines_fault_in_its_own_words() -> None:
    said = {"error": {"message": "CUDA out of memory"}, "data": [{"index": 0, "probs": [1.0]}]}
    reply = await score(FakeEngine(classify=(200, said)))
    assert reply.status == 500
    assert "CUDA out of memory" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**400, None, "0.5", True], ids=lambda value: repr(value)[:8]
)
async def test_a_score_that_is_no_finite_number_is_the_engines_fault(value: Any) -> None:
    reply = await score(FakeEngine(classify=(200, classification(value))))
    assert reply.status == 500
    assert "not a finite number" in reply.json()["error"]["message"]


async def test_a_nan_that_vllm_blames_on_the_caller_is_the_engines_fault() -> None:
    engine = FakeEngine(classify=(400, complaint("Out of range float values are not JSON compliant: nan")))
    reply = await score(engine)
    assert reply.status == 500
    assert "NaN or infinite" in reply.json()["error"]["message"]


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}", json.dumps(classification(1.0, 2.0)).encode()])
async def test_an_answer_that_is_not_one_score_per_sample_is_the_engines_fault(answer: bytes) -> None:
    assert (await score(FakeEngine(classify=(200, answer)))).status == 500


@pytest.mark.parametrize(("engine_status", "status"), [(500, 500), (503, 503), (501, 501), (401, 500)])
async def test_an_engines_failure_stays_a_failure(engine_status: int, status: int) -> None:
    assert (await score(FakeEngine(classify=(engine_status, {"error": "dead"})))).status == status


async def test_an_engine_without_the_route_blames_no_sample() -> None:
    assert (await score(FakeEngine())).status == 500


# The caller's faults


async def test_a_sample_that_is_too_long_is_a_200_with_both_lengths() -> None:
    engine = FakeEngine(classify=(400, complaint(VLLM_TOO_LONG)), tokenize=(200, {"count": 700}))
    reply = await score(engine)
    assert reply.status == 200
    error = parse_answer(reply.body, count=1)
    assert isinstance(error, CallerError)
    assert (error.code, error.length_tokens, error.limit_tokens) == ("sample_too_long", 700, 512)


async def test_the_long_one_of_several_samples_is_named() -> None:
    engine = FakeEngine(classify=(400, complaint(VLLM_TOO_LONG)))
    reply = await score(engine, [[1] * 3, [1] * 513])
    assert reply.json()["error"]["message"] == "input 1 has 513 tokens, the model takes at most 512"


@pytest.mark.parametrize(
    ("message", "limit", "length"),
    [
        (VLLM_TOO_LONG, 512, None),
        (VLLM_TOO_LONG.replace("at least 513", "600"), 512, 600),
        (VLLM_TOO_MANY_CHARACTERS, 512, None),
        (SGLANG_TOO_LONG, 512, 600),
    ],
)
def test_limits_are_read_from_the_words_of_both_engines(message: str, limit: int, length: int | None) -> None:
    too_long = parse_too_long(message)
    assert too_long is not None
    assert (too_long.limit_tokens, too_long.length_tokens) == (limit, length)


async def test_sglangs_complaint_has_its_message_on_top() -> None:
    engine = FakeEngine(v1__embeddings=(400, {"object": "error", "message": SGLANG_TOO_LONG, "code": 400}))
    error = (await score(engine, [1] * 600, engine="sglang")).json()["error"]
    assert (error["code"], error["length_tokens"], error["limit_tokens"]) == ("sample_too_long", 600, 512)


@pytest.mark.parametrize(
    "body", [b"nope", b"[1]", b'{"input": "a"}', b"\xff", b"[" * 100_000], ids=lambda body: repr(body[:20])
)
async def test_a_malformed_request_never_reaches_the_engine(body: bytes) -> None:
    engine = FakeEngine()
    reply = await ask(worker(engine), "POST", "/v1/embeddings", body)
    assert (reply.status, reply.json()["error"]["code"]) == (200, "invalid_sample")
    assert engine.asked == []


@pytest.mark.parametrize("given", ["\ud800", ["fine", "a\udc00b"]])
async def test_a_text_with_half_a_character_never_reaches_the_engine(given: Any) -> None:
    engine = FakeEngine()
    error = (await score(engine, given)).json()["error"]
    assert error["code"] == "invalid_sample"
    assert f"input {len(given) - 1} has half of a surrogate pair at character {len(given) - 1}" in error["message"]
    assert engine.asked == []


async def test_a_body_over_the_bound_is_refused_without_being_kept() -> None:
    reply = await score(FakeEngine(), "x" * 1000, max_body_bytes=100)
    assert reply.json()["error"] == {
        "code": "invalid_sample",
        "message": "the request has more than 100 bytes",
        "fault": "verifier",
    }


async def test_any_other_complaint_is_an_invalid_sample_in_the_engines_words() -> None:
    reply = await score(FakeEngine(classify=(400, complaint("Token id 9 is out of vocabulary"))))
    assert reply.json()["error"] == {
        "code": "invalid_sample",
        "message": "Token id 9 is out of vocabulary",
        "fault": "verifier",
    }


async def test_a_judges_complaint_is_reworded_too() -> None:
    engine = FakeEngine(v1__chat__completions=(400, complaint(VLLM_TOO_LONG)), tokenize=(200, {"count": 705}))
    app = worker(engine, model_type="Generative")
    reply = await ask(app, "POST", "/v1/chat/completions", {"model": "rm", "messages": ["a long one"]})
    error = reply.json()["error"]
    assert (reply.status, error["length_tokens"], error["limit_tokens"]) == (200, 705, 512)
    assert engine.asked[-1] == ("/tokenize", {"model": "rm", "messages": ["a long one"]})


PICTURE = {"type": "image_url", "image_url": {"url": "https://pictures.example/cat.png"}}


@pytest.mark.parametrize(("shows_media", "is_refused"), [(False, True), (True, False), (None, False)])
async def test_a_picture_that_the_engine_would_leave_out_is_refused_by_its_place(
    shows_media: bool | None, is_refused: bool
) -> None:
    engine = FakeEngine(v1__chat__completions=(200, {"choices": []}))
    judge = worker(engine, model_type="Generative", engine="sglang")
    state = SimpleNamespace() if shows_media is None else SimpleNamespace(shows_media=shows_media)

    async def in_application(scope: Any, receive: Any, send: Any) -> None:
        await judge({**scope, "app": SimpleNamespace(state=state)}, receive, send)

    content = [{"type": "text", "text": "What is it?"}, PICTURE]
    messages = [{"role": "system", "content": "Look."}, {"role": "user", "content": content}]
    reply = await ask(in_application, "POST", "/v1/chat/completions", {"model": "rm", "messages": messages})
    assert (engine.count("/v1/chat/completions") == 0) is is_refused
    if is_refused:
        assert reply.json()["error"] == {
            "code": "invalid_sample",
            "message": "messages[1].content[1] is image_url, and this model takes text alone",
            "fault": "verifier",
        }


@pytest.mark.parametrize(
    "body",
    [
        b"[",
        b"[" * 100_000,
        b"[" * 900 + b"]" * 900,
        b"[1]",
        b'{"messages": ' + b"[" * 70 + b"]" * 70 + b"}",
        b'{"temperature": NaN}',
        b'{"temperature": 1e999}',
        b'{"messages": "\\ud800"}',
        b'{"n": ' + b"9" * 5000 + b"}",
        b"\xff{}",
    ],
)
async def test_a_question_that_an_engine_would_fail_at_never_reaches_it(body: bytes) -> None:
    engine = FakeEngine()
    reply = await ask(worker(engine, model_type="Generative"), "POST", "/v1/chat/completions", body)
    assert (reply.status, reply.json()["error"]["code"]) == (200, "invalid_sample")
    assert engine.asked == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/secrets/picture.png", "ftp://inside/a.png", " http://a"])
@pytest.mark.parametrize("part", [{"type": "image_url"}, {"type": "video_url"}, {}])
async def test_a_worker_opens_no_file_of_its_own_for_a_question(url: str, part: dict[str, Any]) -> None:
    engine = FakeEngine()
    for given in (url, {"url": url}):
        content = [{**part, part.get("type", "image_url"): given}]
        request = {"model": "rm", "messages": [{"role": "user", "content": content}]}
        reply = await ask(worker(engine, model_type="Generative"), "POST", "/v1/chat/completions", request)
        assert reply.json()["error"]["code"] == "invalid_sample"
    assert engine.asked == []


async def test_a_judges_answer_passes_unchanged() -> None:
    engine = FakeEngine(v1__chat__completions=(200, b"data: token\n\n"))
    app = worker(engine, model_type="Generative")
    reply = await ask(app, "POST", "/v1/chat/completions", {"model": "rm", "messages": []})
    assert (reply.status, reply.body) == (200, b"data: token\n\n")


async def test_a_caller_who_hangs_up_is_told_nothing_and_blamed_on_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def engine(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"

    caplog.clear()
    app = ScoreMiddleware(engine, settings=Settings())
    reply = await ask(app, "POST", "/v1/embeddings", {"model": "rm", "input": "hello"})
    assert reply.status == 0
    assert "without an answer" not in caplog.text


# The key


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("first\n")
    return path


@pytest.mark.parametrize("path", ["/v1/embeddings", "/classify", "/v1/models", "/sleep", "/health/"])
@pytest.mark.parametrize("key", [None, "", "wrong", "firs", "first2"])
async def test_every_other_path_needs_the_key(path: str, key: str | None, key_file: Path) -> None:
    engine = FakeEngine()
    reply = await ask(worker(engine, key_file=key_file), "POST", path, {}, key=key)
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert engine.asked == []


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_open_paths_need_no_key(path: str, key_file: Path) -> None:
    engine = FakeEngine(metrics=(200, {}))
    assert (await ask(worker(engine, key_file=key_file), "GET", path)).status == 200


@pytest.mark.parametrize(
    "path",
    ["/update_weights_from_disk", "/flush_cache", "/pause", "/invocations", "/classify", "/health/", "//health", "/x"],
)
async def test_the_key_opens_no_route_of_the_engine_that_scoring_does_not_need(path: str, key_file: Path) -> None:
    engine = FakeEngine()
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert (await ask(worker(engine, key_file=key_file), method, path, {}, key="first")).status == 404
    assert engine.asked == []


@pytest.mark.parametrize("path", sorted(ROUTED_PATHS - {"/v1/embeddings"}))
async def test_what_routers_hand_on_and_is_not_scored_costs_no_worker_its_place(path: str) -> None:
    engine = FakeEngine()
    reply = await ask(worker(engine), "POST", path, {"model": "rm"})
    assert (reply.status, reply.json()["error"]["code"]) == (200, "invalid_sample")
    assert engine.asked == []


async def test_the_right_key_passes(key_file: Path) -> None:
    reply = await ask(worker(FakeEngine(), key_file=key_file), "GET", "/v1/models", key="first")
    assert reply.json() == MODELS


def test_a_rotated_key_is_read_again(key_file: Path) -> None:
    key = KeyFile(key_file)
    assert key.admits(b"Bearer first")
    rotated = key_file.with_name("rotated")
    rotated.write_text("second")
    rotated.replace(key_file)
    assert key.admits(b"Bearer second")
    assert not key.admits(b"Bearer first")


@pytest.mark.parametrize("name", ["next-key", "previous-key"])
def test_the_other_key_of_a_rotation_is_valid_while_it_is_there(key_file: Path, name: str) -> None:
    key = KeyFile(key_file)
    other = key_file.with_name(name)
    other.write_text("second\n")
    assert key.admits(b"Bearer first")
    assert key.admits(b"Bearer second")
    other.unlink()
    assert key.admits(b"Bearer first")
    assert not key.admits(b"Bearer second")


def test_an_empty_file_beside_the_key_admits_nobody(key_file: Path) -> None:
    key_file.with_name("next-key").write_text("")
    assert not KeyFile(key_file).admits(b"Bearer ")


def test_a_secrets_link_that_is_switched_changes_all_keys_at_once(tmp_path: Path) -> None:
    for version, keys in {"1": {"key": "old", "next-key": "new"}, "2": {"key": "new", "previous-key": "old"}}.items():
        (tmp_path / version).mkdir()
        for name, text in keys.items():
            (tmp_path / version / name).write_text(text)
    (tmp_path / "data").symlink_to("1")
    for name in names.KEY_NAMES:
        (tmp_path / name).symlink_to(Path("data") / name)
    key = KeyFile(tmp_path / "key")
    (tmp_path / "switched").symlink_to("2")
    (tmp_path / "switched").replace(tmp_path / "data")
    assert key.admits(b"Bearer new")
    assert key.admits(b"Bearer old")
    (tmp_path / "2" / "previous-key").unlink()
    assert not key.admits(b"Bearer old")


def test_a_key_file_that_vanishes_keeps_the_last_key_in_force(key_file: Path) -> None:
    key = KeyFile(key_file)
    key_file.unlink()
    assert key.admits(b"Bearer first")
    assert not key.admits(None)


def test_an_empty_key_file_stops_the_worker_at_its_start(key_file: Path) -> None:
    key_file.write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        KeyFile(key_file)


async def test_a_websocket_without_the_key_is_closed(key_file: Path) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": []}
    await worker(FakeEngine(), key_file=key_file)(scope, None, send)  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_a_worker_without_a_key_file_says_that_it_is_open(caplog: pytest.LogCaptureFixture) -> None:
    assert KeyFile(None).admits(None)
    assert "scores for anybody" in caplog.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("REWARDPOOL_MODEL_TYPE", "Function"),
        ("REWARDPOOL_ENGINE", "tgi"),
        ("REWARDPOOL_MAX_BODY_BYTES", "many"),
        ("REWARDPOOL_PROBE_SECONDS", "0"),
    ],
)
def test_a_wrong_setting_names_its_variable(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=variable):
        Settings.from_environment({variable: value})


# Readiness


async def ready(app: ScoreMiddleware) -> Any:
    return await ask(app, "GET", "/rewardpool/ready")


async def test_ready_makes_a_real_score_and_says_what_the_model_takes() -> None:
    engine = FakeEngine(classify=(200, classification(0.5)))
    reply = await ready(worker(engine))
    assert reply.status == 200
    said = {"ready": True, "model": "rm", "max_model_len": 512, "probe_score": 0.5, "score_seconds": 0.0}
    assert reply.json() == said
    assert engine.count("/classify") == 1


async def test_ready_for_a_judge_generates_one_token() -> None:
    engine = FakeEngine(v1__chat__completions=(200, {"choices": []}))
    assert (await ready(worker(engine, model_type="Generative"))).status == 200
    assert engine.asked[-1][1]["max_tokens"] == 1


@pytest.mark.parametrize("answer", [(200, classification(float("nan"))), (500, {}), (404, {"detail": "Not Found"})])
async def test_an_engine_that_does_not_score_is_not_ready(answer: tuple[int, Any]) -> None:
    reply = await ready(worker(FakeEngine(classify=answer)))
    assert reply.status == 503
    assert reply.json()["reason"]


async def test_many_probers_share_one_probe() -> None:
    engine = FakeEngine(classify=(200, classification(0.5)))
    engine.gate.clear()
    app = worker(engine)
    probers = [asyncio.create_task(ready(app)) for _ in range(20)]
    await asyncio.sleep(0)
    engine.gate.set()
    assert {reply.status for reply in await asyncio.gather(*probers)} == {200}
    assert engine.count("/classify") == 1


async def test_a_prober_that_gives_up_leaves_the_probe_to_the_others() -> None:
    engine = FakeEngine(classify=(200, classification(0.5)))
    engine.gate.clear()
    app = worker(engine)
    impatient, patient = asyncio.create_task(ready(app)), asyncio.create_task(ready(app))
    await asyncio.sleep(0)
    impatient.cancel()
    engine.gate.set()
    assert (await patient).status == 200


CONFIG = {
    "architectures": ["Qwen2ForSequenceClassification"],
    "id2label": {"10": "k", "2": "c", "0": "helpful", "1": "true"} | {str(i): f"l{i}" for i in range(3, 10)},
    "hidden_size": 64,
}


@pytest.mark.parametrize(
    ("numbers", "config", "words"),
    [
        (
            11,
            CONFIG,
            ("11 numbers", "Qwen2ForSequenceClassification", "helpful, true, c", "spec.model.head {type: Class"),
        ),
        (64, CONFIG, ("64 numbers", "Qwen2ForSequenceClassification has hidden units", "without a reward head")),
        (3, CONFIG, ("3 numbers", "declare in spec.model.head")),
        (3, None, ("3 numbers", "declare in spec.model.head")),
    ],
)
async def test_a_worker_with_several_numbers_a_sample_is_not_ready_and_says_what_to_declare(
    tmp_path: Path, numbers: int, config: Any, words: tuple[str, ...]
) -> None:
    if config:
        (tmp_path / "config.json").write_text(json.dumps(config))
    said = {"data": [{"index": 0, "embedding": [0.125] * numbers}]}
    app = worker(FakeEngine(v1__embeddings=(200, said)), engine="sglang", model_path=str(tmp_path))
    reply = await ready(app)
    assert reply.status == 503
    assert all(part in reply.json()["reason"] for part in words), reply.json()["reason"]


@pytest.mark.parametrize(
    "answer",
    [(404, {"detail": "Not Found"}), (501, {"error": {"message": "The model does not support Classification API"}})],
)
async def test_a_checkpoint_without_a_classification_head_is_named(tmp_path: Path, answer: tuple[int, Any]) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    reply = await ready(worker(FakeEngine(classify=answer), model_path=str(tmp_path)))
    assert reply.status == 503
    assert "serves LlamaForCausalLM without a classification head" in reply.json()["reason"]


async def test_broken_weights_are_told_from_a_bad_sample() -> None:
    nan = complaint("Out of range float values are not JSON compliant: nan")
    reply = await ready(worker(FakeEngine(classify=(400, nan))))
    assert reply.status == 503
    assert "look for broken weights" in reply.json()["reason"]


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"architectures": 3, "id2label": {"a": "b"}}', '{"id2label": []}'])
def test_a_config_that_cannot_be_read_leaves_the_checkpoint_unnamed(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert Checkpoint.at(str(tmp_path)) == Checkpoint()


async def test_a_flooded_worker_is_ready_without_another_probe() -> None:
    clock = Clock()
    engine = FakeEngine(classify=(200, classification(0.5)))
    app = worker(engine, clock=clock)
    await ready(app)
    clock.seconds += 60
    await ask(app, "POST", "/v1/embeddings", {"model": "rm", "input": "a trainer's sample"})
    asked = engine.count("/classify")
    assert (await ready(app)).status == 200
    assert engine.count("/classify") == asked


async def test_an_old_score_proves_nothing() -> None:
    clock = Clock()
    engine = FakeEngine(classify=(200, classification(0.5)))
    app = worker(engine, clock=clock)
    await ready(app)
    engine.answers["/classify"] = (500, {})
    clock.seconds += 5.1
    assert (await ready(app)).status == 503


async def test_a_failure_is_remembered_for_a_moment_only() -> None:
    clock = Clock()
    engine = FakeEngine(classify=(500, {}))
    app = worker(engine, clock=clock)
    await ready(app)
    await ready(app)
    assert engine.count("/classify") == 1
    engine.answers["/classify"] = (200, classification(0.5))
    clock.seconds += 1.1
    assert (await ready(app)).status == 200


async def test_a_probe_that_hangs_ends_at_its_deadline() -> None:
    engine = FakeEngine(classify=(200, classification(0.5)))
    engine.gate.clear()
    reply = await ready(worker(engine, probe_seconds=0.01))
    assert reply.json() == {"ready": False, "reason": "no score within 0.01 seconds"}


# Whose answer it is


async def ask_named(app: ScoreMiddleware, path: str, content: Any) -> Any:
    return (await ask(app, "POST", path, content, x_correlation_id="r-1")).json()


async def test_a_request_for_another_revision_is_refused_before_the_engine_is_asked() -> None:
    engine = FakeEngine(classify=(200, classification(-1.5)))
    app, content = worker(engine, revision="5f1c"), {"model": "rm", "input": "hello"}
    refused = (await ask(app, "POST", "/v1/embeddings", content, x_correlation_id="r-1;revision=other")).json()
    assert (refused["error"]["code"], refused["revision"]) == ("other_revision", "5f1c")
    assert refused["request_id"] == "r-1;revision=other"
    scored = (await ask(app, "POST", "/v1/embeddings", content, x_correlation_id="r-2;revision=5f1c")).json()
    assert scored["data"][0]["embedding"] == [-1.5]


async def test_a_request_of_another_wire_contract_is_refused_in_words_before_the_engine_is_asked() -> None:
    engine = FakeEngine(classify=(200, classification(-1.5)))
    app, content = worker(engine, revision="5f1c"), {"model": "rm", "input": "hello"}
    refused = (await ask(app, "POST", "/v1/embeddings", content, x_correlation_id="r-1;wire=2;revision=5f1c")).json()
    assert (refused["error"]["code"], refused["data"]) == ("other_wire", [])
    assert "the worker version 1" in refused["error"]["message"]


async def test_an_answer_says_which_worker_worked_on_it_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_WORKER, "skywork-0")
    clock = Clock()

    class SlowEngine(FakeEngine):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            clock.seconds += 2.0 * (scope["path"] == "/classify")
            await super().__call__(scope, receive, send)

    app = worker(SlowEngine(classify=(200, classification(-1.5))), clock=clock)
    await ask_named(app, "/v1/embeddings", {"model": "rm", "input": "hello"})
    clock.seconds += 7.0
    answer = await ask_named(app, "/v1/embeddings", {"model": "rm", "input": "hello"})
    assert answer["worker"] == {"name": "skywork-0", "seconds": 2.0, "ready_seconds": 9.0}


@pytest.mark.parametrize("given", ["hello", 17], ids=["a score", "an error"])
async def test_an_answer_repeats_the_requests_id_and_names_the_revision(given: Any) -> None:
    app = worker(FakeEngine(classify=(200, classification(-1.5))), revision="5f1c")
    answer = await ask_named(app, "/v1/embeddings", {"model": "rm", "input": given})
    assert (answer["request_id"], answer["revision"]) == ("r-1", "5f1c")


async def test_a_request_without_an_id_is_answered_without_one() -> None:
    answer = (await score(FakeEngine(classify=(200, classification(-1.5))), revision="5f1c")).json()
    assert ("request_id" in answer, answer["revision"]) == (False, "5f1c")


async def test_words_of_a_judge_say_whose_they_are() -> None:
    said = {"id": "chatcmpl-1", "choices": [{"message": {"content": "good"}}]}
    engine = FakeEngine(v1__chat__completions=(200, said))
    engine.content_type = b"application/json"
    app = worker(engine, revision="5f1c", model_type="Generative")
    answer = await ask_named(app, "/v1/chat/completions", {"model": "rm", "messages": []})
    assert {**answer, "worker": None} == {**said, "request_id": "r-1", "revision": "5f1c", "worker": None}
