"""Whatever workers do, and in whatever order, every sample comes out exactly once and never with another's score."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_worker import Behaviour, FakeWorker, breaks_off, refuses, right, says

from rewardpool import Pool, RewardConfig, Sample, Scored, Unscored
from rewardpool_api.contract import CallerError


async def late(request: Any) -> Any:
    await asyncio.sleep(0.005)
    return await right(request)


BEHAVIOURS: dict[str, Behaviour] = {
    "right": right,
    "late": late,
    "not json": says("not json"),
    "NaN": says('{"data": [{"embedding": [NaN]}]}'),
    "500": says("", status=500),
    "503": says("", status=503),
    "breaks off": breaks_off,
    "invalid": refuses(CallerError(code="invalid_sample", message="no")),
    "400": says("no", status=400),
}


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


async def rollouts(count: int) -> AsyncIterator[Sample]:
    for length in range(count):
        if length % 3 == 0:
            await asyncio.sleep(0)
        yield Sample(text="x" * length)


@settings(deadline=None, max_examples=60)
@given(
    script=st.lists(st.sampled_from(sorted(BEHAVIOURS)), max_size=60),
    count=st.integers(0, 40),
    concurrency=st.integers(1, 12),
    attempts=st.integers(1, 3),
    is_async=st.booleans(),
)
async def test_every_index_comes_exactly_once_with_its_own_score_or_with_none(
    script: list[str], count: int, concurrency: int, attempts: int, is_async: bool
) -> None:
    config: dict[str, Any] = {"on_failure": "skip", "concurrency": concurrency, "attempts": attempts}
    async with FakeWorker(*(BEHAVIOURS[name] for name in script)) as worker:
        samples = rollouts(count) if is_async else [Sample(text="x" * length) for length in range(count)]
        async with Pool(RewardConfig(url=worker.url, **config), sleep=no_pause) as pool:
            outcomes = [item async for item in pool.stream(samples)]
            report = pool.report()
        assert worker.most_in_flight <= concurrency

    assert sorted(index for index, _ in outcomes) == list(range(count))
    for index, outcome in outcomes:
        match outcome:
            case Scored(value=value):
                assert value == float(index)
            case Unscored(error=error):
                assert error.sample == f"#{index}"
    assert report.scored + report.unscored == report.samples == count
    assert report.attempts == len(worker.requests) == count + sum(report.setbacks.values())
