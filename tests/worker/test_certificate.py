"""A worker is ready only where its numbers do not depend on how they are asked for.

The engine is a stand-in whose numbers are spoilt in one way at a time; what real ones give is tested in tests/engines.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.asgi import Reply, ask

from rewardpool_api import names
from rewardpool_api.certificate import NUMBERS_VARY
from rewardpool_worker.engine_side.middleware.certificate import (
    BATCHED,
    CACHED,
    PLAN,
    PROMPT_TOKENS,
    REORDERED,
    NumbersVaryError,
    certify,
    fixed_samples,
)
from rewardpool_worker.engine_side.middleware.heads import Head
from rewardpool_worker.engine_side.middleware.readiness import Readiness
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings

Spoil = Callable[["Engine", list[int], int], float]
"""By how much a sample's number is off: the engine, the request's lengths, and which of them it is."""


def never(engine: "Engine", lengths: list[int], index: int) -> float:
    return 0.0


def behind_a_cached_prefix(engine: "Engine", lengths: list[int], index: int) -> float:
    return engine.off * (len(lengths) == 1 and engine.asked.count(lengths) > 1)


def in_a_batch(engine: "Engine", lengths: list[int], index: int) -> float:
    return engine.off * (len(lengths) == 3)


def in_another_order(engine: "Engine", lengths: list[int], index: int) -> float:
    return engine.off * (len(lengths) == 4 and index == 0)


class Engine:
    """In vLLM's place: a sample's number is a hundredth of its length, and of a text 0.5."""

    def __init__(self, spoil: Spoil = never, *, off: float = 0.5) -> None:
        self.spoil, self.off = spoil, off
        self.asked: list[list[int]] = []
        self.samples: list[list[int]] = []
        self.refuses_ids = False
        self.hangs = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, content = 200, {"data": [{"id": "rm", "max_model_len": 512}]}
        if scope["path"] != "/v1/models":
            status, content = await self._scored(json.loads(body).get("input", []))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(content).encode()})

    async def _scored(self, samples: list[Any]) -> tuple[int, Any]:
        if samples and isinstance(samples[0], list):
            if self.hangs:
                await asyncio.Event().wait()
            if self.refuses_ids:
                return 400, {"error": {"message": "no token ids"}}
            self.asked.append([len(sample) for sample in samples])
            self.samples += samples
            scores = [len(one) / 100 + self.spoil(self, self.asked[-1], at) for at, one in enumerate(samples)]
        else:
            scores = [0.5 for _ in samples]
        return 200, {"data": [{"index": at, "probs": [score]} for at, score in enumerate(scores)]}


def worker(engine: Engine, **settings: Any) -> ScoreMiddleware:
    return ScoreMiddleware(engine, settings=Settings(served_name="rm", **{"dtype": "float32", **settings}))


async def ready(app: ScoreMiddleware) -> Reply:
    return await ask(app, "GET", names.READY_PATH)


async def test_a_worker_whose_numbers_do_not_vary_is_ready_and_says_so() -> None:
    reply = await ready(worker(Engine()))
    certificate = reply.json()["certificate"]
    assert (reply.status, certificate["outcome"], certificate["max_abs_diff"]) == (200, "Certified", 0.0)
    assert "0 of 9 pairs of scores change their order" in certificate["message"]


@pytest.mark.parametrize(
    ("spoil", "way", "setting"),
    [
        (behind_a_cached_prefix, CACHED, "--no-enable-prefix-caching in spec.engine.args"),
        (in_a_batch, BATCHED, "spec.engine.deterministic to true, which takes a GPU"),
        (in_another_order, REORDERED, "spec.engine.deterministic to true, which takes a GPU"),
    ],
)
async def test_a_worker_whose_numbers_vary_is_not_ready_and_names_the_setting(
    spoil: Spoil, way: str, setting: str
) -> None:
    reply = await ready(worker(Engine(spoil)))
    said = reply.json()
    assert (reply.status, said["code"]) == (503, NUMBERS_VARY)
    assert f"{way} by 0.5 (0." in said["reason"]
    assert said["reason"].endswith(f"set {setting}")


async def test_a_setting_that_is_there_already_is_not_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["server", "--no-enable-prefix-caching"])
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    reason = (await ready(worker(Engine(behind_a_cached_prefix), dtype="bfloat16"))).json()["reason"]
    assert reason.endswith("vllm has no further setting against it: set spec.engine.dtype to float32")


@pytest.mark.parametrize(("dtype", "status"), [("float32", 503), ("bfloat16", 200), ("auto", 200)])
async def test_the_number_format_says_what_may_differ(dtype: str, status: int) -> None:
    assert (await ready(worker(Engine(in_a_batch, off=0.02), dtype=dtype))).status == status


async def test_a_worker_whose_numbers_varied_once_never_serves() -> None:
    engine = Engine(in_a_batch)
    app = worker(engine)
    await ready(app)
    engine.spoil, asked = never, len(engine.asked)
    reply = await ready(app)
    assert (reply.status, reply.json()["code"], len(engine.asked)) == (503, NUMBERS_VARY, asked)


async def test_a_worker_is_certified_once() -> None:
    engine = Engine()
    app = worker(engine)
    await ready(app)
    app._readiness.forget()
    assert (await ready(app)).json()["certificate"]["outcome"] == "Certified"
    assert len(engine.asked) == len(PLAN)


async def test_a_worker_that_is_too_slow_serves_and_says_that_it_is_not_certified() -> None:
    engine = Engine()
    engine.hangs = True
    reply = await ready(worker(engine, certificate_seconds=0.01))
    said = "too slow: 0 of 7 requests were answered within 0.01 s"
    assert (reply.status, reply.json()["certificate"]) == (200, {"outcome": "NotCertified", "message": said})


async def test_what_was_measured_before_the_deadline_counts() -> None:
    async def off_and_then_silent(samples: Any) -> Any:
        if len(samples) > 1:
            await asyncio.Event().wait()
        asked.append(samples)
        return [(float(len(asked)),)]

    asked: list[Any] = []
    samples = fixed_samples(prompt_tokens=PROMPT_TOKENS, most_tokens=None, vocabulary=None, last=None)
    measuring = certify(off_and_then_silent, samples, dtype="float32", seconds=0.05, scores=True, remedy=str)
    with pytest.raises(NumbersVaryError, match=f"{CACHED} by 1 "):
        await measuring


async def test_a_worker_that_takes_no_token_ids_serves_and_says_that_it_is_not_certified() -> None:
    engine = Engine()
    engine.refuses_ids = True
    reply = await ready(worker(engine))
    assert (reply.status, reply.json()["certificate"]["outcome"]) == (200, "NotCertified")
    assert "no token ids" in reply.json()["certificate"]["message"]


async def test_a_worker_whose_engine_fails_at_the_samples_alone_serves_and_says_that_it_is_not_certified() -> None:
    async def probe() -> dict[str, Any]:
        return {}

    async def failing() -> dict[str, Any]:
        raise RuntimeError("NaN")

    times = itertools.count(0.0, 10.0)
    readiness = Readiness(deadline_seconds=5, clock=lambda: next(times))
    reports = [await readiness.report(probe, failing) for _ in range(3)]
    assert [ready for ready, _ in reports] == [False, False, True]
    said = "the engine failed 3 times: RuntimeError: NaN"
    assert reports[-1][1]["certificate"] == {"outcome": "NotCertified", "message": said}


@pytest.mark.parametrize("settings", [{"model_type": "Generative"}, {"certificate_seconds": 0}])
async def test_a_judge_and_a_worker_that_is_to_have_none_are_not_certified(settings: dict[str, Any]) -> None:
    engine = Engine()
    reply = await ready(worker(engine, **settings))
    assert (reply.status, "certificate" in reply.json(), engine.asked) == (200, False, [])


async def test_samples_end_with_the_token_of_a_step() -> None:
    engine = Engine()
    await ready(worker(engine, head=Head(step_token="+", step_token_id=7)))
    assert {sample[-1] for sample in engine.samples} == {7}


@pytest.mark.parametrize(("most", "vocabulary"), [(None, None), (2, 3), (64, 50), (100_000, 151_936)])
def test_samples_are_within_the_model(most: int | None, vocabulary: int | None) -> None:
    given = {"prompt_tokens": PROMPT_TOKENS, "most_tokens": most, "vocabulary": vocabulary, "last": None}
    samples = fixed_samples(**given)
    assert samples == fixed_samples(**given)
    assert all(2 <= len(sample) <= (most or 512) for sample in samples)
    assert all(0 <= token < (vocabulary or 250) for sample in samples for token in sample)


@pytest.mark.parametrize("given", ["-1", "nan", "inf", "soon"])
def test_seconds_that_are_none_are_refused_by_name(given: str) -> None:
    with pytest.raises(ValueError, match=names.ENV_CERTIFICATE_SECONDS):
        Settings.from_environment({names.ENV_CERTIFICATE_SECONDS: given})
