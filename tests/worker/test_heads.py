"""From the numbers that an engine gives a sample to its score, as tables and properties."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.asgi import ask

from rewardpool_api.contract import CallerError, parse_answer
from rewardpool_worker.engine_side.middleware.errors import EngineFaultError, InvalidRequestError
from rewardpool_worker.engine_side.middleware.heads import Head, NotOneNumberError
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings

CLASSIFIER = Head(type="Classifier", weights=(0.5, -2.0, 1.0))
YES_NO = Head(type="LMHead", weights=(1.0, -1.0))
finite = st.floats(min_value=-700, max_value=700)


def steps(aggregate: str) -> Head:
    return Head(type="TokenLevel", aggregate=aggregate, step_token="<s>", step_token_id=5)


@pytest.mark.parametrize(
    ("head", "raw", "score"),
    [
        (Head(), [-1.5], -1.5),
        (Head(type="LMHead"), [10.25], 10.25),
        (YES_NO, [3.0, 1.25], 1.75),
        (Head(type="LMHead", softcap=2.0), [1.0], 2 * math.tanh(0.5)),
        (Head(type="LMHead", weights=(1.0, -1.0), softcap=2.0), [900.0, 1.0], 2.0 - 2 * math.tanh(0.5)),
        (CLASSIFIER, [2.0, 0.5, -3.0], -3.0),
        (Head(type="Classifier", weights=(2.0,)), [0.5], 1.0),
        (steps("last"), [[0.0, 0.0], [math.log(3), 0.0]], 0.25),
        (steps("min"), [[0.0, 0.0], [math.log(3), 0.0], [0.0, math.log(3)]], 0.25),
        (steps("mean"), [[0.0, 0.0], [math.log(3), 0.0]], 0.375),
        (steps("product"), [[0.0, 0.0], [math.log(3), 0.0]], 0.125),
        (steps("mean"), [[1.5], [-2.5]], -0.5),
        (steps("min"), [[1.5], [-2.5]], -2.5),
        (replace(steps("last"), softcap=2.0), [[-900.0, 900.0]], 1 / (1 + math.exp(-4.0))),
        (Head(type="TokenLevel", aggregate="last"), [[9.0], [9.0], [0.75]], 0.75),
    ],
)
def test_a_head_makes_one_score(head: Head, raw: list[Any], score: float) -> None:
    assert head.read(raw, 0)["embedding"] == [pytest.approx(score, abs=1e-15)]


@pytest.mark.parametrize(
    ("head", "raw"),
    [
        (Head(), []),
        (Head(), [1.0, 2.0]),
        (Head(type="LMHead"), [1.0, 2.0]),
        (YES_NO, [1.0]),
        (CLASSIFIER, [1.0]),
        (CLASSIFIER, [1.0] * 4),
        (steps("last"), [[1.0, 2.0, 3.0]]),
        (steps("last"), [[]]),
    ],
)
def test_another_count_of_numbers_than_the_head_has_is_no_score(head: Head, raw: list[Any]) -> None:
    with pytest.raises(NotOneNumberError):
        head.read(raw, 0)


@pytest.mark.parametrize(
    ("head", "raw"),
    [
        (Head(), None),
        (CLASSIFIER, [1.0, math.nan, 1.0]),
        (Head(type="Classifier", weights=(1e308, 1e308)), [1e308, 1e308]),
        (steps("min"), [[0.0, math.inf]]),
        (steps("min"), [None]),
        (steps("product"), [[0.5], [0.5]]),
    ],
)
def test_what_is_no_finite_number_or_no_probability_is_the_engines_fault(head: Head, raw: Any) -> None:
    with pytest.raises(EngineFaultError):
        head.read(raw, 0)


def test_a_sample_without_a_step_is_named_with_the_token_that_it_lacks() -> None:
    with pytest.raises(InvalidRequestError, match="input 3 has no step: none of its tokens is '<s>'"):
        steps("mean").read([], 3)


def test_the_steps_travel_beside_the_score() -> None:
    assert steps("min").read([[1.5], [-2.5]], 0) == {"embedding": [-2.5], "steps": [1.5, -2.5]}


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=20))
def test_values_of_steps_are_probabilities_and_every_aggregate_lies_within_them(
    logits: list[tuple[float, float]],
) -> None:
    raw = [list(pair) for pair in logits]
    found = {aggregate: steps(aggregate).read(raw, 0) for aggregate in ("last", "min", "mean", "product")}
    values = found["min"]["steps"]
    assert all(0 <= value <= 1 for value in values)
    assert all(
        min(values) - 1e-12 <= found[one]["embedding"][0] <= max(values) + 1e-12 for one in ("last", "min", "mean")
    )
    assert 0 <= found["product"]["embedding"][0] <= min(values)


@given(st.floats(min_value=0, max_value=700))
def test_small_probabilities_are_not_rounded_to_nothing(odds: float) -> None:
    (value,) = steps("last").read([[odds, 0.0]], 0)["steps"]
    assert math.log(value) == pytest.approx(-odds - math.log1p(math.exp(-odds)), abs=1e-9)


@given(finite, finite)
def test_both_labels_probabilities_make_one(no: float, yes: float) -> None:
    (value,), (other,) = (steps("last").read([pair], 0)["steps"] for pair in ([no, yes], [yes, no]))
    assert value + other == pytest.approx(1.0, abs=1e-12)


class FakeEngine:
    """An ASGI application that answers every path with one content, and keeps what it was asked."""

    def __init__(self, content: Any, status: int = 200) -> None:
        self.content, self.status = content, status
        self.asked: list[tuple[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        models = scope["path"] == "/v1/models"
        self.asked.append((scope["path"], None if models else json.loads((await receive())["body"])))
        content = {"data": [{"id": "rm", "max_model_len": 9}]} if models else self.content
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(content).encode()})


def worker(fake: FakeEngine, head: Head, **settings: Any) -> ScoreMiddleware:
    return ScoreMiddleware(fake, settings=Settings(served_name="rm", head=head, certificate_seconds=0, **settings))


async def test_a_process_reward_model_is_asked_for_its_tokens_without_an_activation() -> None:
    engine = FakeEngine({"data": [{"index": 0, "data": [[0.0, 0.0]]}]})
    reply = await ask(worker(engine, steps("last")), "POST", "/v1/embeddings", {"model": "rm", "input": "a"})
    assert reply.json()["data"] == [{"object": "embedding", "index": 0, "embedding": [0.5], "steps": [0.5]}]
    request = {"model": "rm", "input": ["a"], "use_activation": False, "task": "token_classify"}
    assert engine.asked == [("/pooling", request)]


async def test_a_sample_without_a_step_is_the_callers_fault() -> None:
    engine = FakeEngine({"data": [{"index": 0, "data": []}]})
    reply = await ask(worker(engine, steps("last")), "POST", "/v1/embeddings", {"model": "rm", "input": "a"})
    error = parse_answer(reply.body, count=1)
    assert reply.status == 200
    assert isinstance(error, CallerError)
    assert error.code == "invalid_sample"


@pytest.mark.parametrize(("raw", "score"), [([0.75], 0.75), ([0.0, 0.0], 0.5)])
async def test_sglangs_numbers_are_the_last_tokens_and_not_a_number_per_token(raw: list[float], score: float) -> None:
    engine = FakeEngine({"data": [{"index": 0, "embedding": raw}]})
    app = worker(engine, Head(type="TokenLevel", aggregate="last"), engine="sglang")
    reply = await ask(app, "POST", "/v1/embeddings", {"model": "rm", "input": "a"})
    assert reply.json()["data"] == [{"object": "embedding", "index": 0, "embedding": [score], "steps": [score]}]


async def test_the_probe_of_a_process_reward_model_is_a_step() -> None:
    engine = FakeEngine({"data": [{"index": 0, "data": [[0.0, 0.0]]}]})
    assert (await ask(worker(engine, steps("last")), "GET", "/rewardpool/ready")).status == 200
    assert engine.asked[-1][1]["input"] == [[5]]


@pytest.mark.parametrize(
    ("labels", "status", "words"),
    [
        (("a", "b", "c"), 200, ""),
        (
            ("a", "c", "b"),
            503,
            "spec.model.head.labels are a, c, b, and those of LlamaForSequenceClassification are a, b, c",
        ),
    ],
)
async def test_weights_of_other_labels_than_the_checkpoints_are_not_served(
    tmp_path: Path, labels: tuple[str, ...], status: int, words: str
) -> None:
    config = {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    head = Head(type="Classifier", weights=(1.0, 1.0, 1.0), labels=labels)
    app = worker(FakeEngine({"data": [{"index": 0, "probs": [1.0, 2.0, 3.0]}]}), head, model_path=str(tmp_path))
    reply = await ask(app, "GET", "/rewardpool/ready")
    assert reply.status == status
    assert words in str(reply.json())


async def test_weights_for_another_count_of_labels_are_not_served() -> None:
    app = worker(FakeEngine({"data": [{"index": 0, "probs": [1.0]}]}), CLASSIFIER)
    reply = await ask(app, "GET", "/rewardpool/ready")
    assert "gives a sample 1 numbers, and spec.model.head is for 3" in reply.json()["reason"]


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ('{"type": "TokenLevel", "stepToken": "<s>", "aggregate": "min", "stepTokenId": 5}', steps("min")),
        ('{"type": "LMHead", "yesToken": "y", "noToken": "n", "tokenIds": [7, 8]}', YES_NO),
        (
            '{"type": "TokenLevel", "stepToken": "<s>", "yesToken": "y", "noToken": "n", "aggregate": "min",'
            ' "tokenIds": [8, 7], "stepTokenId": 5, "softcap": 2.0}',
            replace(steps("min"), softcap=2.0),
        ),
        ('{"type": "LMHead", "token": "y", "tokenIds": [7], "softcap": 2.0}', Head(type="LMHead", softcap=2.0)),
    ],
)
def test_a_head_of_the_api_is_read_from_the_environment(text: str, head: Head) -> None:
    assert Settings.from_environment({"REWARDPOOL_HEAD": text}).head == head
    assert Settings.from_environment({}).head == Head()
