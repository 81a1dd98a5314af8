"""A pool that refuses everything is an error of the pool; a sample that is refused is one of the sample."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from support.fake_worker import Behaviour, FakeWorker, refuses, right, says
from support.pauses import no_pause

from rewardpool import Pool, RewardConfig, Sample, Scored
from rewardpool.client.breaker import Breaker
from rewardpool.client.pool import injected_pool
from rewardpool.errors import InvalidSampleError, PoolError, PoolNotReadyError, PoolRefusesError, ScoreError
from rewardpool_api.contract import CallerError

BAD_SAMPLE = says("this one is bad", status=400)
ODD = refuses(CallerError(code="invalid_sample", message="odd"))


def pool_on(worker: FakeWorker, **settings: Any) -> Pool:
    return injected_pool(RewardConfig(url=worker.url, on_failure={"constant": 0}, **settings), call_later=no_pause)


@pytest.mark.parametrize("status", [404, 405, 301, 410, 501])
async def test_a_wrong_address_gives_no_sample_a_constant(status: int) -> None:
    async with FakeWorker(*[says("nginx", status=status)] * 100) as worker, pool_on(worker) as pool:
        ends = await asyncio.gather(*(pool.outcome(Sample(text="x")) for _ in range(100)), return_exceptions=True)
    assert {type(end) for end in ends} == {PoolRefusesError}


async def test_an_address_where_nobody_listens_becomes_no_constant_for_ever() -> None:
    async with FakeWorker() as gone:
        pass
    async with pool_on(gone, timeout=0.2, breaker_threshold=4) as pool:
        ends = await asyncio.gather(*(pool.outcome(Sample(text="x")) for _ in range(10)), return_exceptions=True)
    assert [type(end) for end in ends].count(PoolNotReadyError) == 7  # all but the first three


async def failures_of(script: Sequence[Behaviour], **settings: Any) -> list[Any]:
    """What becomes of as many samples, one after the other."""
    ends: list[Any] = []
    async with FakeWorker(*script) as worker, pool_on(worker, **settings) as pool:
        for _ in script:
            ends += await asyncio.gather(pool.outcome(Sample(text="x")), return_exceptions=True)
    return ends


async def test_so_many_equal_refusals_without_a_score_between_them_are_the_pools() -> None:
    ends = await failures_of([right, *[BAD_SAMPLE] * 4], breaker_threshold=4)
    assert [type(end) for end in ends] == [Scored] * 4 + [PoolRefusesError]


async def test_bad_samples_among_good_ones_are_none_of_the_pools() -> None:
    ends = await failures_of([BAD_SAMPLE, BAD_SAMPLE, right] * 5, breaker_threshold=3)
    assert {type(end) for end in ends} == {Scored}


async def test_a_workers_own_word_on_bad_samples_is_an_answer() -> None:
    ends = await failures_of([ODD] * 20, breaker_threshold=3)
    assert {type(end) for end in ends} == {Scored}


async def test_a_404_after_a_success_is_one_samples() -> None:
    ends = await failures_of([right, says("", status=404), right], breaker_threshold=3)
    assert {type(end) for end in ends} == {Scored}


@given(
    st.lists(st.sampled_from(["score", 400, 404, 413, 422, 501]), max_size=60),
    st.integers(1, 8),
)
def test_after_the_first_success_it_opens_when_and_only_when_so_many_in_a_row_are_equal(
    course: list[Any], threshold: int
) -> None:
    breaker = Breaker(threshold)
    breaker.answered()
    run: list[Any] = []
    for one in course:
        if one == "score":
            breaker.answered()
            run = []
            continue
        error = (InvalidSampleError if one in (400, 413, 422) else ScoreError)("s", "refused")
        error.status = one
        run = [*run, one] if not run or run[-1] == one else [one]
        assert isinstance(breaker.refused(error, where="there"), PoolError) == (len(run) >= threshold)


async def test_an_error_of_the_pool_is_counted_once() -> None:
    async def not_here(_: web.Request) -> web.StreamResponse:
        return web.Response(status=405)

    async with FakeWorker(not_here) as worker, pool_on(worker) as pool:
        with pytest.raises(PoolRefusesError, match="405"):
            await pool.outcome(Sample(text="x"))
        report = pool.report()
    assert (report.samples, report.unscored, report.constants) == (1, 1, 0)
