"""The client through a real sglang-router, with real processes behind it that die, hang and come back.

The workers are a stand-in engine with a fixed score per text; the router, the kills and the silence are real.
"""

import asyncio
import itertools
import json
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.fixed_worker import LIMIT_WORDS, fixed_score
from support.fleet import Fleet

from rewardpool import Outcome, Pool, RewardConfig, Sample, Scored, Unscored
from rewardpool.errors import SampleTooLongError

pytestmark = pytest.mark.real


def texts(count: int) -> list[str]:
    return [f"conversation {index}" for index in range(count)]


async def score_directly(url: str, samples: list[str]) -> list[float]:
    """What a worker itself says about the texts, without router and client."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=200)) as session:

        async def score(text: str) -> float:
            async with session.post(url + "/v1/embeddings", json={"model": "m", "input": text}) as answer:
                return float((await answer.json())["data"][0]["embedding"][-1])

        return await asyncio.gather(*(score(text) for text in samples))


@asynccontextmanager
async def during(trouble: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run trouble beside the body, and end it with the body; trouble that fails by itself fails the test."""
    task = asyncio.create_task(trouble)
    try:
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    finally:
        task.cancel()


async def collect(pool: Pool, samples: list[str]) -> dict[int, Outcome]:
    """All outcomes of a stream; fails on an index that comes twice."""
    outcomes: dict[int, Outcome] = {}
    async for index, outcome in pool.stream(Sample(text=text) for text in samples):
        assert index not in outcomes
        outcomes[index] = outcome
    return outcomes


def values(outcomes: dict[int, Outcome]) -> list[float]:
    """The scores in the order of the input."""
    scored = [outcomes[index] for index in range(len(outcomes))]
    return [outcome.value for outcome in scored if isinstance(outcome, Scored)]


async def test_two_thousand_samples_get_their_right_scores_while_workers_are_killed(tmp_path: Path) -> None:
    samples = texts(2000)
    kills = 0

    async def kill_and_restart_one_after_the_other(fleet: Fleet) -> None:
        nonlocal kills
        for worker in itertools.cycle(fleet.workers):
            await asyncio.sleep(0.5)
            worker.kill()
            kills += 1
            await asyncio.sleep(1.0)
            await worker.start()

    async with Fleet(tmp_path, workers=3, delay_seconds=0.2) as fleet:
        direct = await score_directly(fleet.workers[0].url, samples)
        config = RewardConfig(url=fleet.router.url, concurrency=32)
        async with during(kill_and_restart_one_after_the_other(fleet)), Pool(config) as pool:
            outcomes = await collect(pool, samples)
            report = pool.report()

    print(f"{kills} kills, {report}")
    assert kills >= 4
    assert (report.samples, report.scored, report.unscored) == (2000, 2000, 0)
    assert values(outcomes) == direct


async def test_a_router_that_is_restarted_costs_time_and_no_sample(tmp_path: Path) -> None:
    samples = texts(300)

    async def restart(fleet: Fleet) -> None:
        await asyncio.sleep(0.5)
        fleet.router.kill()
        await asyncio.sleep(1.0)
        await fleet.router.start()
        await fleet.join()

    async with Fleet(tmp_path, workers=2, delay_seconds=0.1) as fleet:
        config = RewardConfig(url=fleet.router.url, concurrency=16)
        async with during(restart(fleet)), Pool(config) as pool:
            outcomes = await collect(pool, samples)
            report = pool.report()

    assert report.setbacks["unreachable"] > 0
    assert values(outcomes) == [fixed_score(text) for text in samples]


async def test_a_pool_whose_router_moved_is_followed_to_its_new_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDPOOL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    samples = texts(200)

    async def move(fleet: Fleet) -> None:
        await asyncio.sleep(0.5)
        fleet.router.kill()
        fleet.router.move()
        await fleet.router.start()
        await fleet.join()
        write_state(tmp_path / "state", fleet.router.url)

    async with Fleet(tmp_path, workers=2, delay_seconds=0.1) as fleet:
        write_state(tmp_path / "state", fleet.router.url)
        async with during(move(fleet)), Pool(RewardConfig(reward_pool="rl/fixed", concurrency=16)) as pool:
            outcomes = await collect(pool, samples)
            assert pool.endpoint.url == fleet.router.url
            assert pool.report().rediscoveries > 0

    assert values(outcomes) == [fixed_score(text) for text in samples]


def write_state(folder: Path, url: str) -> None:
    """The state file that a pool on this machine would have."""
    place = folder / "rl" / "fixed"
    place.mkdir(parents=True, exist_ok=True)
    state = {
        "metadata": {"name": "fixed", "namespace": "rl"},
        "spec": {"model": {"source": "hf://org/fixed"}},
        "status": {
            "url": url,
            "replicas": 2,
            "model": {"type": "Discriminative", "servedName": "fixed"},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ],
        },
    }
    fresh = place / "fresh.json"
    fresh.write_text(json.dumps(state))
    fresh.replace(place / "pool.json")


async def test_a_worker_that_falls_silent_costs_one_attempt_and_no_sample(tmp_path: Path) -> None:
    samples = texts(200)

    async def silence(fleet: Fleet) -> None:
        await asyncio.sleep(0.3)
        fleet.workers[0].signal(signal.SIGSTOP)

    async with Fleet(tmp_path, workers=2, delay_seconds=0.1) as fleet:
        config = RewardConfig(url=fleet.router.url, concurrency=16, attempt_seconds=2)
        async with during(silence(fleet)), Pool(config) as pool:
            outcomes = await collect(pool, samples)
            report = pool.report()

    assert report.setbacks["worker"] > 0
    assert report.latency.max < 20  # the router itself holds what a silent worker has for its request timeout, 60 s
    assert values(outcomes) == [fixed_score(text) for text in samples]


async def test_a_sample_waits_for_the_first_worker_within_its_deadline(tmp_path: Path) -> None:
    async with Fleet(tmp_path, workers=1, delay_seconds=0) as fleet:
        fleet.workers[0].kill()
        async with Pool(RewardConfig(url=fleet.router.url)) as pool:
            waiting = asyncio.create_task(pool.score(Sample(text="early")))
            await asyncio.sleep(3)
            await fleet.workers[0].start()
            assert await waiting == fixed_score("early")


async def test_samples_that_are_too_long_are_named_and_do_not_disturb_the_others(tmp_path: Path) -> None:
    # More of them than the router's circuit breaker forgives, which is why the contract answers them with 200.
    too_long = ["word " * (LIMIT_WORDS + 1)] * 50
    async with (
        Fleet(tmp_path, workers=1, delay_seconds=0) as fleet,
        Pool(RewardConfig(url=fleet.router.url, on_failure="skip")) as pool,
    ):
        outcomes = await collect(pool, [*too_long, *texts(50)])

    failed = [outcome.error for outcome in outcomes.values() if isinstance(outcome, Unscored)]
    assert {(type(error), str(error).partition(": ")[2]) for error in failed} == {
        (SampleTooLongError, "has 101 tokens and the model takes at most 100")
    }
    assert {index: outcome.value for index, outcome in outcomes.items() if isinstance(outcome, Scored)} == {
        50 + index: fixed_score(text) for index, text in enumerate(texts(50))
    }
