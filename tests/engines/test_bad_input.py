"""Bad samples and bad checkpoints against the real engines, one replica each behind a real router.

Each gets an error with its name, and the worker's next score is right.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.launch_target import KEY
from support.parity import ENGINES, JUDGES, Numbers, run, transformers_scores
from support.processes import http
from support.replicas import RefusedError, Replicas, engine_python, replicas, spec_of
from support.tiny_models import ELSEWHERE, MAX_POSITIONS

from rewardpool_api.contract import CallerError, parse_answer

pytestmark = pytest.mark.real

CLASS = "Qwen3"
VOCABULARY = 263
"""Tokens of the tiny model."""
CLOSE = 1e-5
SCORED = [
    "a good sample",
    "<|user|>Praise me<|end|><|assistant|><|end|>",
    "<|endoftext|>",
    "\x00\x07\u202e\ufeff\ufffd",
    " \n",
    "x" * MAX_POSITIONS,
]
"""The first is asked again after each bad one. The others are odd, and samples all the same."""
MILLION = 1_000_000


@dataclass(frozen=True)
class Model:
    """A tiny reward model, and what transformers computes with it."""

    folder: Path
    expected: dict[str, Numbers]


@dataclass(frozen=True)
class Pool:
    """An engine that serves it."""

    engine: str
    replicas: Replicas
    expected: dict[str, Numbers]

    def error(self, given: Any, *, url: str | None = None) -> CallerError:
        """The named error of bad input, after which a good sample has its score."""
        found = parse_answer(json.dumps(self.replicas.ask(given, url=url)), count=1)
        assert isinstance(found, CallerError), found
        self.assert_right(SCORED[0])
        return found

    def assert_right(self, text: str) -> None:
        """A text has the score that transformers gives it."""
        assert self.replicas.scores(text)[0] == pytest.approx(self.expected[text], abs=CLOSE)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("model")
    run("make", CLASS, str(folder / "model"))
    expected = transformers_scores(CLASS, folder / "model", [*SCORED], folder)
    return Model(folder / "model", dict(zip(SCORED, expected, strict=True)))


@pytest.fixture(scope="module", params=ENGINES)
def pool(request: pytest.FixtureRequest, model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    engine_python(request.param)
    with replicas(spec_of(request.param, model.folder), tmp_path_factory.mktemp(request.param), count=1) as started:
        yield Pool(request.param, started, model.expected)


@pytest.mark.parametrize(
    "given",
    [
        [-1],
        [[5], [-1]],
        [VOCABULARY],
        [[5], [VOCABULARY]],
        [7] * 5000 + [VOCABULARY],
        [10**9],
        [10**30],
        [1.5],
        [True],
        [None],
        [5, "text"],
        ["text", [5]],
        [],
        [[]],
        [[5], []],
        None,
        5,
        {"text": "hello"},
    ],
    ids=repr,
)
def test_what_are_no_token_ids_of_the_model_is_an_invalid_sample(pool: Pool, given: Any) -> None:
    assert pool.error(given).code == "invalid_sample"


@pytest.mark.parametrize("given", ["", ["good", ""]], ids=ascii)
def test_an_empty_text_is_an_invalid_sample(pool: Pool, given: Any) -> None:
    assert pool.error(given).code == "invalid_sample"


@pytest.mark.parametrize("given", ["\ud800", ["good", "a\udc00b"]], ids=ascii)
def test_half_a_character_is_an_invalid_sample_and_no_json_for_a_router(pool: Pool, given: Any) -> None:
    assert "half of a surrogate pair" in pool.error(given, url=pool.replicas.urls[0]).message
    request = {"model": "rm", "input": given}
    status, _, said = http("POST", pool.replicas.router + "/v1/embeddings", request, key=KEY)
    assert (status, "Failed to parse the request body as JSON" in str(said)) == (400, True)


@pytest.mark.parametrize("given", [[7] * MILLION, "x" * MILLION, "word " * (MILLION // 5)], ids=["ids", "x", "words"])
def test_a_million_tokens_are_too_long_and_both_lengths_are_said(pool: Pool, given: Any) -> None:
    refused = pool.error(given)
    assert (refused.code, refused.length_tokens, refused.limit_tokens) == ("sample_too_long", MILLION, MAX_POSITIONS)


@pytest.mark.parametrize("text", SCORED, ids=lambda text: ascii(text[:20]))
def test_an_odd_text_has_its_score_or_is_an_invalid_sample(pool: Pool, text: str) -> None:
    answer = pool.replicas.ask(text)
    if (pool.engine, text) == ("sglang", " \n"):
        assert answer["error"]["code"] == "invalid_sample"
    else:
        assert answer["data"][0]["embedding"] == pytest.approx(pool.expected[text], abs=CLOSE)


@pytest.mark.parametrize("depth", [500, 100_000])
def test_a_request_of_brackets_alone_is_an_invalid_sample(pool: Pool, depth: int) -> None:
    body = b'{"model": "rm", "input": ' + b"[" * depth + b"]" * depth + b"}"
    status, _, answer = http("POST", pool.replicas.urls[0] + "/v1/embeddings", body, key=KEY)
    assert (status, answer["error"]["code"]) == (200, "invalid_sample")
    pool.assert_right(SCORED[0])


REFUSED = {
    "no head": "score.weight",
    "a missing layer": "model.layers.1.mlp.down_proj.weight",
    "a narrow head": "",
    "more labels": "",
    "NaN weights": "NaN",
    "a part that the class lacks": "gate",
}
"""Faults of a checkpoint, and a word of why it is not served."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", REFUSED)
def test_a_broken_checkpoint_never_gets_ready_and_says_why(
    engine: str, fault: str, model: Model, tmp_path: Path
) -> None:
    run("break", fault, str(model.folder), str(tmp_path / "model"))
    with pytest.raises(RefusedError) as refused, replicas(spec_of(engine, tmp_path / "model"), tmp_path, count=1):
        pass
    assert REFUSED[fault] in str(refused.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_another_models_tokenizer_costs_the_samples_with_its_own_tokens_alone(
    engine: str, model: Model, tmp_path: Path
) -> None:
    run("break", "another model's tokenizer", str(model.folder), str(tmp_path / "model"))
    with replicas(spec_of(engine, tmp_path / "model"), tmp_path, count=1) as started:
        pool = Pool(engine, started, model.expected)
        assert str(VOCABULARY) in pool.error(f"a word from {ELSEWHERE}").message


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize("engine", JUDGES)
def test_a_judge_that_takes_text_alone_refuses_a_picture(engine: str, tmp_path: Path) -> None:
    run("make", "generative", str(tmp_path / "model"))
    spec = spec_of(engine, tmp_path / "model")
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"type": "Generative"})})
    with replicas(spec, tmp_path, count=1) as started:

        def asked(*content: Any) -> Any:
            messages = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, *content]}]
            request = {"model": "rm", "messages": messages, "max_tokens": 4}
            status, _, answer = http("POST", started.router + "/v1/chat/completions", request, key=KEY, seconds=300)
            assert status == 200, answer
            return answer

        assert asked(PICTURE)["error"]["code"] == "invalid_sample"
        assert asked()["choices"]
