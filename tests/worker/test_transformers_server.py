"""The engine `transformers`: its server below the score middleware, with a fake model, and started for real."""

import asyncio
import json
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.custom_head import MAX_MODEL_LEN, VOCABULARY, expected, token_ids, write_checkpoint
from support.launch_target import KEY, target_in
from support.processes import RealProcess, http, scrape

from rewardpool_api import RewardPoolSpec, contract, names
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings
from rewardpool_worker.engine_side.transformers_server import Application, Bounds, SampleBatcher, plan_batches
from rewardpool_worker.engine_side.worker_metrics import WorkerMetrics
from rewardpool_worker.engines import engine_for

START_SECONDS = 200.0


@given(
    lengths=st.lists(st.integers(1, 50)),
    bounds=st.builds(Bounds, samples=st.integers(1, 8), tokens=st.integers(1, 120)),
)
def test_every_sample_is_in_one_batch_within_the_bounds(lengths: list[int], bounds: Bounds) -> None:
    batches = plan_batches(lengths, bounds)
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[position] for position in batch)
        assert len(batch) == 1 or (len(batch) <= bounds.samples and padded <= bounds.tokens)


def test_samples_of_like_lengths_are_together() -> None:
    assert plan_batches([9, 1, 8, 2], Bounds(samples=2)) == [[1, 3], [2, 0]]


class FakeModel:
    """Scores a sample by its length, on the batcher's thread; `gate` holds it there."""

    max_model_len = 20

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def encode(self, sample: str | Sequence[int]) -> list[int]:
        ids = list(sample.encode()) if isinstance(sample, str) else list(sample)
        if not ids:
            raise ValueError("the sample has no tokens")
        return ids

    def score(self, batch: Sequence[list[int]]) -> list[float]:
        assert self.gate.wait(10)
        self.batches.append(len(batch))
        if any(ids == [33] for ids in batch):
            raise RuntimeError("the head met '!'")
        return [float("nan") if ids == [63] else float(len(ids)) for ids in batch]


async def ask(app: Any, method: str, path: str, content: Any = None, *, stays: bool = True) -> tuple[int, Any]:
    """One request of a caller who stays for the answer, or hangs up at once."""
    messages = [{"type": "http.request", "body": json.dumps(content).encode(), "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        if stays:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": []}
    await app(scope, receive, send)
    return (sent[0]["status"], json.loads(sent[1]["body"])) if sent else (0, None)


def served(model: FakeModel, metrics: WorkerMetrics | None = None) -> ScoreMiddleware:
    app = Application(model, served_name="rm", bounds=Bounds(), metrics=metrics or WorkerMetrics())
    return ScoreMiddleware(app, settings=Settings(engine="transformers", served_name="rm"))


async def scores(app: Any, given_input: Any, *, model: str = "rm") -> Any:
    status, body = await ask(app, "POST", contract.SCORE_PATH, {"model": model, "input": given_input})
    return body.get("error") or [item["embedding"] for item in body["data"]] if status == 200 else (status, body)


@pytest.mark.parametrize(
    ("given_input", "answer"),
    [
        ("four", [[4.0]]),
        (["a", "four", "bb"], [[1.0], [4.0], [2.0]]),
        ([1, 2, 3], [[3.0]]),
        ([[1], [2, 2]], [[1.0], [2.0]]),
    ],
)
async def test_every_form_of_input_gets_a_number_for_each_item_in_its_order(given_input: Any, answer: Any) -> None:
    assert await scores(served(FakeModel()), given_input) == answer


@pytest.mark.parametrize(
    ("given_input", "model", "error"),
    [
        (
            ["a", ""],
            "rm",
            {"code": "invalid_sample", "message": "input 1: the sample has no tokens", "fault": "verifier"},
        ),
        (
            ["a", "x" * 21],
            "rm",
            {
                "code": "sample_too_long",
                "message": "input 1 has 21 tokens, the model takes at most 20",
                "fault": "policy",
                "length_tokens": 21,
                "limit_tokens": 20,
            },
        ),
        (
            "a",
            "other",
            {
                "code": "wrong_model",
                "message": "there is no model 'other' here: this worker serves 'rm'",
                "fault": "infra",
                "served": "rm",
            },
        ),
    ],
    ids=["blank", "too long", "another model"],
)
async def test_what_the_caller_did_wrong_is_a_200_with_an_error(given_input: Any, model: str, error: Any) -> None:
    assert await scores(served(FakeModel()), given_input, model=model) == error


async def test_the_longest_sample_is_taken() -> None:
    assert await scores(served(FakeModel()), "x" * 20) == [[20.0]]


async def test_one_sample_that_fails_fails_alone() -> None:
    app = served(FakeModel())
    good, bad = await asyncio.gather(scores(app, "good"), scores(app, "!"))
    assert good == [[4.0]]
    assert bad[0] == 500
    assert "the head met '!'" in bad[1]["error"]["message"]


async def test_a_score_that_is_no_number_is_the_engines_fault() -> None:
    status, body = await scores(served(FakeModel()), ["a", "?"])
    assert status == 500
    assert "scored input 1 as nan" in body["error"]["message"]


async def test_samples_that_come_while_the_model_computes_are_its_next_batch() -> None:
    model = FakeModel()
    model.gate.clear()
    batcher = SampleBatcher(model.score, Bounds())
    first = asyncio.create_task(batcher.scores([[1]]))
    await asyncio.sleep(0)
    others = [asyncio.create_task(batcher.scores([[1] * n])) for n in range(1, 6)]
    await asyncio.sleep(0)
    model.gate.set()
    assert await asyncio.gather(first, *others) == [[1.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    assert len(model.batches) <= 2


async def test_nothing_is_computed_for_a_caller_who_hung_up() -> None:
    model = FakeModel()
    metrics = WorkerMetrics()
    app = Application(model, served_name="rm", bounds=Bounds(), metrics=metrics)
    content = {"model": "rm", "input": ["a"] * 50}
    model.gate.clear()
    kept = asyncio.create_task(ask(app, "POST", contract.SCORE_PATH, {"model": "rm", "input": ["first"]}))
    await asyncio.sleep(0.05)
    assert await ask(app, "POST", contract.SCORE_PATH, content, stays=False) == (0, None)
    model.gate.set()
    assert (await kept)[0] == 200
    assert (await ask(app, "POST", contract.SCORE_PATH, {"model": "rm", "input": ["last"]}))[0] == 200
    assert model.batches == [1, 1]
    labels = {"kind": "abandoned", "fault": "infra"}
    assert metrics.registry.get_sample_value("rewardpool_worker_failures_total", labels) == 1


async def test_requests_samples_and_failures_are_counted() -> None:
    metrics = WorkerMetrics()
    app = served(FakeModel(), metrics)
    for given_input in (["a", "bb"], "", "!", "x" * 21):
        await scores(app, given_input)
    value = metrics.registry.get_sample_value
    assert value("rewardpool_worker_requests_total") == 4
    assert value("rewardpool_worker_request_seconds_count") == 4
    assert value("rewardpool_worker_samples_total") == 2
    assert value("rewardpool_worker_in_flight") == 0
    kinds = [("invalid_sample", "verifier"), ("no_score", "infra"), ("sample_too_long", "policy")]
    failures = [value("rewardpool_worker_failures_total", {"kind": kind, "fault": fault}) for kind, fault in kinds]
    assert failures == [1, 1, 1]


async def test_readiness_is_a_real_score_and_says_how_long_a_sample_may_be() -> None:
    status, report = await ask(served(FakeModel()), "GET", names.READY_PATH)
    assert (status, report["ready"], report["model"], report["max_model_len"]) == (200, True, "rm", 20)


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
def test_bounds_that_hold_no_sample_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="--max-batch-samples"):
        Bounds(*bounds)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealProcess, str]]:
    """The real server with a model that has a head of its own, started as a pool's worker is."""
    folder = tmp_path_factory.mktemp("transformers")
    checkpoint = write_checkpoint(folder / "model")
    spec = RewardPoolSpec.model_validate(
        {
            "model": {"source": f"file://{checkpoint}", "trustRemoteCode": True},
            "engine": {"name": "transformers", "dtype": "float32"},
            "worker": {"gpus": 0, "drainSeconds": 20},
        }
    )
    target = target_in(folder)
    launch = engine_for("transformers").launch(spec, target)
    url = f"http://{target.host}:{target.port}"
    with RealProcess(launch.argv, env=launch.env, log=folder / "server.log", cwd=folder) as process:
        process.until(lambda: http("GET", url + names.READY_PATH)[0] == 200, seconds=START_SECONDS, what="it scores")
        yield process, url


def real_scores(url: str, given_input: Any) -> Any:
    status, _, body = http("POST", url + contract.SCORE_PATH, {"model": "rm", "input": given_input}, key=KEY)
    assert status == 200, body
    return body.get("error") or [score for item in body["data"] for score in item["embedding"]]


@pytest.mark.real
def test_the_real_server_scores_as_the_models_own_code_says_and_then_drains(server: tuple[RealProcess, str]) -> None:
    process, url = server
    texts = ["a", "hello world", "x" * MAX_MODEL_LEN, "ümläut 日本", "<|pad", "\x00 \n"]
    right = [expected(token_ids(text)) for text in texts]
    assert real_scores(url, texts) == pytest.approx(right, abs=1e-5)
    assert [real_scores(url, text)[0] for text in texts] == pytest.approx(right, abs=1e-5)
    assert real_scores(url, [token_ids(text) for text in texts]) == pytest.approx(right, abs=1e-5)
    assert real_scores(url, ["a", "x" * (MAX_MODEL_LEN + 1)])["code"] == "sample_too_long"
    assert f"token id {VOCABULARY} is out of vocabulary" in real_scores(url, [[1], [VOCABULARY]])["message"]
    assert real_scores(url, "")["code"] == "invalid_sample"
    assert http("POST", url + contract.SCORE_PATH, {"model": "rm", "input": "a"})[0] == 401
    assert http("GET", url + "/v1/models")[0] == 401
    assert http("GET", url + names.LOAD_PATH, key=KEY)[2] == {"in_flight": 0}
    told = scrape(url)
    assert told["rewardpool_worker_requests_total"] > len(texts)
    assert told["rewardpool_worker_in_flight"] == 0
    assert KEY not in process.log.read_text()
    with ThreadPoolExecutor(1) as callers:
        in_flight = callers.submit(real_scores, url, ["hello world"] * 3000)
        process.until(
            lambda: http("GET", url + names.LOAD_PATH, key=KEY)[2] == {"in_flight": 1}, seconds=20, what="in flight"
        )
        process.signal(signal.SIGTERM)
        assert in_flight.result() == pytest.approx([right[1]] * 3000, abs=1e-5)
    assert process.exit_code(seconds=30) == 0
