"""Several samples in one request: which, how many, and that one sample's trouble is nobody else's."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_worker import Behaviour, FakeWorker, breaks_off, check_outcomes, hangs, right, says
from support.pauses import no_pause

from rewardpool import Endpoint, Pool, RewardConfig, Sample, Scored
from rewardpool._client.batching import MOST_CHARACTERS, share
from rewardpool._client.pool import injected_pool
from rewardpool_api.contract import CallerError


@pytest.mark.parametrize(
    ("waiting", "slots", "most", "samples"),
    [(1, 64, 8, 1), (64, 64, 8, 1), (65, 64, 8, 2), (256, 64, 8, 4), (10_000, 64, 8, 8), (5, 1, 8, 5)],
)
def test_a_request_takes_its_share_of_what_waits(waiting: int, slots: int, most: int, samples: int) -> None:
    assert share(waiting=waiting, slots=slots, most=most) == samples


def pool_on(worker: FakeWorker, **settings: Any) -> Pool:
    return injected_pool(
        RewardConfig(url=worker.url, **{"batch": 4, "concurrency": 2, **settings}), call_later=no_pause
    )


def sizes(worker: FakeWorker) -> list[int]:
    """Samples in each request."""
    inputs = [request["input"] for request in worker.requests]
    return [len(given) if isinstance(given, list) and isinstance(given[0], str) else 1 for given in inputs]


async def scores(pool: Pool, samples: list[Sample]) -> dict[int, float]:
    outcomes = [item async for item in pool.stream(samples)]
    assert len(outcomes) == len(samples)
    return {index: outcome.value for index, outcome in outcomes if isinstance(outcome, Scored)}


async def test_a_sample_with_a_free_slot_goes_at_once_and_alone() -> None:
    async with FakeWorker() as worker, pool_on(worker) as pool:
        await asyncio.gather(*(pool.score(Sample(text="four")) for _ in range(2)))
    assert [request["input"] for request in worker.requests] == ["four", "four"]


async def test_samples_that_wait_go_together_and_each_gets_its_own_score() -> None:
    async with FakeWorker() as worker, pool_on(worker) as pool:
        assert await scores(pool, [Sample(text="x" * length) for length in range(1, 41)]) == {
            index: float(index + 1) for index in range(40)
        }
        report = pool.report()
    assert max(sizes(worker)) == 4
    assert report.attempts < report.samples == report.scored == 40
    assert report.batched_samples == sum(size for size in sizes(worker) if size > 1)


async def test_how_many_go_together_is_found_where_that_is_left_to_the_client() -> None:
    async with FakeWorker() as worker, pool_on(worker, batch="auto", concurrency=4) as pool:
        assert len(await scores(pool, [Sample(text="four")] * 600)) == 600
    assert 1 < max(sizes(worker)) <= 16


async def test_the_last_ones_of_a_burst_go_beside_each_other() -> None:
    async with FakeWorker() as worker, pool_on(worker) as pool:
        await scores(pool, [Sample(text="four")] * 40)
    assert sizes(worker)[-1] == 1


async def test_token_ids_and_long_samples_go_alone() -> None:
    long = Sample(text="x" * MOST_CHARACTERS)
    async with FakeWorker() as worker, pool_on(worker) as pool:
        found = await scores(pool, [Sample(token_ids=[1, 2, 3])] * 10 + [long] * 10)
    assert found == {index: 3.0 if index < 10 else float(MOST_CHARACTERS) for index in range(20)}
    assert set(sizes(worker)) == {1}


async def picky(request: Any) -> Any:
    """Refuses a request, whole, when one of its samples is `bad`."""
    given = (await request.json())["input"]
    if "bad" in (given if isinstance(given, list) else [given]):
        return await says(json.dumps(CallerError(code="invalid_sample", message="bad").to_wire()))(request)
    return await right(request)


async def test_a_sample_that_fails_does_not_fail_those_it_was_sent_with() -> None:
    samples = [Sample(text="bad" if index % 7 == 3 else "four") for index in range(40)]
    async with FakeWorker(*[picky] * 200) as worker, pool_on(worker, on_failure="skip") as pool:
        found = await scores(pool, samples)
        report = pool.report()
    assert found == {index: 4.0 for index in range(40) if index % 7 != 3}
    assert (report.scored, report.unscored, report.samples) == (34, 6, 40)
    assert report.batch_fallbacks > 0


async def test_a_request_that_breaks_off_is_made_up_for_one_by_one() -> None:
    async with FakeWorker(right, breaks_off, breaks_off) as worker, pool_on(worker, concurrency=1) as pool:
        assert len(await scores(pool, [Sample(text="four")] * 20)) == 20
        assert pool.report().batch_fallbacks == 1


async def test_a_sample_that_is_given_up_leaves_the_others_their_scores() -> None:
    go = asyncio.Event()

    async def waits(request: Any) -> Any:
        await go.wait()
        return await right(request)

    async with FakeWorker(*[waits] * 10) as worker, pool_on(worker, concurrency=1) as pool:
        tasks = [asyncio.create_task(pool.score(Sample(text="four"))) for _ in range(5)]
        await worker.arrived.wait()
        tasks[3].cancel()
        go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for result in found if isinstance(result, float)] == [4.0] * 4
    assert isinstance(found[3], asyncio.CancelledError)


async def test_when_all_of_a_request_are_given_up_so_is_the_request() -> None:
    async with FakeWorker(hangs, hangs) as worker, pool_on(worker, concurrency=1) as pool:
        tasks = [asyncio.create_task(pool.score(Sample(text="four"))) for _ in range(5)]
        await worker.arrived.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await worker.idle.wait()
        report = pool.report()
    assert report.samples == report.cancelled


async def test_what_is_given_up_after_its_request_broke_off_is_counted_as_cancelled() -> None:
    alone = asyncio.Event()

    async def arrives_and_hangs(request: Any) -> Any:
        alone.set()
        return await hangs(request)

    async with FakeWorker(right, breaks_off, arrives_and_hangs) as worker, pool_on(worker, concurrency=1) as pool:
        tasks = [asyncio.create_task(pool.score(Sample(text="four"))) for _ in range(5)]
        await alone.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        report = pool.report()
    assert (report.samples, report.scored, report.cancelled) == (5, 1, 4)


async def test_samples_that_the_pool_does_not_take_are_in_the_report_like_all_others() -> None:
    async def find(_: RewardConfig, **__: Any) -> Endpoint:
        return Endpoint(url=worker.url, pool="rl/rm", served_name="rm", origin="a test", model_type="Function")

    async with FakeWorker() as worker:
        config = RewardConfig(pool="rl/rm", batch=4, concurrency=1, on_failure="skip")
        async with injected_pool(config, find=find) as pool:
            assert await scores(pool, [Sample(text="four")] * 10) == {}
            report = pool.report()
    assert (report.samples, report.unscored) == (10, 10)


BEHAVIOURS: dict[str, Behaviour] = {
    "right": right,
    "picky": picky,
    "not json": says("not json"),
    "500": says("", status=500),
    "503": says("", status=503),
    "400": says("no", status=400),
    "breaks off": breaks_off,
}


@settings(deadline=None, max_examples=60)
@given(
    script=st.lists(st.sampled_from(sorted(BEHAVIOURS)), max_size=40),
    count=st.integers(0, 60),
    concurrency=st.integers(1, 4),
    batch=st.integers(2, 8),
)
async def test_no_sample_is_lost_or_given_anothers_score(
    script: list[str], count: int, concurrency: int, batch: int
) -> None:
    settings = {"on_failure": "skip", "concurrency": concurrency, "batch": batch, "max_attempts": 2}
    async with FakeWorker(*(BEHAVIOURS[name] for name in script)) as worker, pool_on(worker, **settings) as pool:
        outcomes = [item async for item in pool.stream([Sample(text="x" * length) for length in range(count)])]
        report = pool.report()
    check_outcomes(outcomes, count=count)
    assert report.scored + report.unscored == report.samples == count
