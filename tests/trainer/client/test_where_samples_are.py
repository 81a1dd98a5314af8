"""Where the client says that samples are, while a trainer waits for them: a FakeWorker says how long it worked."""

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest
from aiohttp import web
from support.fake_worker import Behaviour, FakeWorker, says, score_of
from support.pauses import no_pause

from rewardpool import Pool, RewardConfig, Sample
from rewardpool._client.pool import injected_pool
from rewardpool._score_waits import ScoreWait, ScoreWaits
from rewardpool_api import contract

SECONDS = 0.2
ALL_THE_TIME = 60.0
"""More than a request takes, so that a busy machine's own time does not count."""


def answers(after: float, **worker: Any) -> Behaviour:
    """The score after so many seconds, and what the worker says of itself."""

    async def behaviour(request: web.Request) -> web.Response:
        text = (await request.json())["input"]
        await asyncio.sleep(after)
        return web.json_response({"data": [{"index": 0, "embedding": [score_of(text)]}], "worker": worker})

    return behaviour


async def waited_for(*script: Behaviour, samples: int = 1, **settings: Any) -> ScoreWait:
    """The shares of a step that is nothing but the wait for these answers."""
    waits = ScoreWaits()
    async with FakeWorker(*script) as worker, _pool(worker, **settings) as pool:
        pool.record_waits(waits)
        waits.lap()
        with waits.waiting():
            await asyncio.gather(*(pool.scored(Sample(text="x" * (n + 1))) for n in range(samples)))
        found = waits.lap()
    assert found is not None
    return found


def _pool(worker: FakeWorker, **settings: Any) -> Pool:
    return injected_pool(RewardConfig(url=worker.url, **settings), call_later=no_pause)


@pytest.mark.parametrize(
    ("worker", "part"),
    [
        pytest.param({"seconds": ALL_THE_TIME}, "serving", id="it worked all the time"),
        pytest.param({"seconds": 0.0}, "queueing", id="it had no place before"),
        pytest.param({"seconds": 0.0, "ready_seconds": 0.0}, "cold_starts", id="it was not there before"),
        pytest.param({"seconds": 0.0, "ready_seconds": 60.0}, "queueing", id="it was there before"),
        pytest.param({}, "serving", id="it does not say"),
    ],
)
async def test_an_answer_says_what_its_time_was_spent_on(worker: dict[str, Any], part: str) -> None:
    found = await waited_for(answers(SECONDS, **worker))
    assert found.most == part
    assert asdict(found)[part] > 0.8


async def test_a_sample_that_waits_while_a_pool_grows_queues() -> None:
    older, newer = (
        answers(SECONDS / 10, seconds=0.0, ready_seconds=60.0),
        answers(SECONDS, seconds=0.0, ready_seconds=0),
    )
    found = await waited_for(older, newer, samples=2)
    assert found.cold_starts == 0.0


async def test_a_sample_that_waits_for_its_turn_at_the_client_queues() -> None:
    found = await waited_for(*[answers(SECONDS, seconds=ALL_THE_TIME)] * 2, samples=2, concurrency=1)
    # One of two waits half of the time: a quarter.
    assert (found.queueing, found.serving) == pytest.approx((0.25, 0.75), abs=0.1)


@pytest.mark.parametrize(
    ("status", "code", "part"), [(500, "broken", "retries"), (503, "no_available_workers", "cold_starts")]
)
async def test_an_attempt_in_vain_is_a_retry_or_a_cold_start(status: int, code: str, part: str) -> None:
    async def in_vain(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(SECONDS)
        return await says(json.dumps({"error": {"code": code}}), status=status)(request)

    found = await waited_for(in_vain)
    assert found.most == part


async def test_a_sample_without_a_score_has_its_time_in_the_parts_too() -> None:
    async def refuses(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(SECONDS)
        return await says(json.dumps({"data": [], "error": {"code": "invalid_sample", "message": "no"}}))(request)

    waits = ScoreWaits()
    async with FakeWorker(refuses) as worker, injected_pool(RewardConfig(url=worker.url, on_failure="skip")) as pool:
        pool.record_waits(waits)
        waits.lap()
        with waits.waiting():
            await pool.outcome(Sample(text="x"))
        found = waits.lap()
    assert found is not None
    assert found.most == "serving"


async def test_who_answered_is_not_read_where_nobody_records_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_worker", None)
    async with FakeWorker(answers(0.0, name="w0")) as worker, _pool(worker) as pool:
        assert await pool.score(Sample(text="x")) == score_of("x")
