"""Whatever workers do and whatever is sent twice, every sample comes out once and never with another's score."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_worker import Behaviour, FakeWorker, breaks_off, check_outcomes, hangs, refuses, right, says
from support.pauses import no_pause

from rewardpool import RewardConfig, Sample
from rewardpool._client.pool import injected_pool
from rewardpool._client.request_timer import LEAST_LEFT_OPEN
from rewardpool._client.rules.hedging import MIN_KNOWN, MOST_HEDGES, Hedging
from rewardpool_api.contract import CallerError


async def late(request: Any) -> Any:
    await asyncio.sleep(0.005)
    return await right(request)


BEHAVIOURS: dict[str, Behaviour] = {
    "right": right,
    "late": late,
    "hangs": hangs,
    "not json": says("not json"),
    "NaN": says('{"data": [{"embedding": [NaN]}]}'),
    "500": says("", status=500),
    "503": says("", status=503),
    "breaks off": breaks_off,
    "invalid": refuses(CallerError(code="invalid_sample", message="no")),
    "400": says("no", status=400),
}


def hasty(*, concurrency: int) -> Hedging:
    """Hedging that takes whatever lasts 3 ms for a straggler."""
    hedging = Hedging(concurrency=concurrency, floor_seconds=0.003)
    for _ in range(MIN_KNOWN):
        hedging.answered(0.0)
    return hedging


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
    config: dict[str, Any] = {"on_failure": "skip", "concurrency": concurrency, "max_attempts": attempts}
    config |= {"timeout": 0.5, "batch": 1}
    async with FakeWorker(*(BEHAVIOURS[name] for name in script)) as worker:
        samples = rollouts(count) if is_async else [Sample(text="x" * length) for length in range(count)]
        async with injected_pool(RewardConfig(url=worker.url, **config), call_later=no_pause, hedging=hasty) as pool:
            outcomes = [item async for item in pool.stream(samples)]
            report = pool.report()
        assert worker.most_in_flight <= (1 + MOST_HEDGES) * concurrency + max(LEAST_LEFT_OPEN, concurrency // 2)

    check_outcomes(outcomes, count=count)
    assert report.scored + report.unscored == report.samples == count
    assert report.attempts == count + sum(report.retries.values()) + report.hedges
    # Of two requests, one may be cancelled before it is sent; one whose kept connection breaks is sent on a new one.
    assert len(worker.requests) <= report.attempts + script.count("breaks off")
    assert report.hedges_won <= report.hedges
