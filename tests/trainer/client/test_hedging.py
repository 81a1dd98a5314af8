"""Stragglers get a second request: when, how many, and which answer counts."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.fake_worker import FakeWorker, hangs, refuses, right, says
from support.pauses import no_pause, pauses_for_ever
from support.quick_hedging import quick

from rewardpool import Pool, RewardConfig, Sample, Scored
from rewardpool._client import request_timer
from rewardpool._client.pool import injected_pool
from rewardpool._client.rules.hedging import FLOOR_SECONDS, MIN_KNOWN, Hedging
from rewardpool.errors import DeadlineError, InvalidSampleError, SampleError, ScoreError
from rewardpool_api.contract import CallerError


def after(*seconds: float, concurrency: int = 64) -> Hedging:
    """What is known after answers that took so long."""
    hedging = Hedging(concurrency=concurrency)
    for each in seconds:
        hedging.answered(each)
    return hedging


def test_before_anything_is_known_nothing_is_a_straggler() -> None:
    assert after(*[0.1] * (MIN_KNOWN - 1)).wait(100.0) == FLOOR_SECONDS


@pytest.mark.parametrize(
    ("usual", "elapsed", "wait"),
    [
        (0.05, 0.0, FLOOR_SECONDS),
        (0.05, 0.2, FLOOR_SECONDS - 0.2),
        (0.05, 0.3, 0.0),
        (1.0, 0.0, 2.0),
        (1.0, 1.5, 0.5),
        (1.0, 2.0, 0.0),
    ],
)
def test_a_straggler_takes_twice_what_is_usual_and_more_than_the_floor(
    usual: float, elapsed: float, wait: float
) -> None:
    assert after(*[usual] * MIN_KNOWN).wait(elapsed) == pytest.approx(wait)


@pytest.mark.parametrize(("beside", "wait"), [(0, 2.0), (1, 2.0), (2, 3.0), (3, 4.5), (4, 6.75)])
def test_the_second_one_goes_as_soon_after_the_first_and_each_further_one_after_a_longer_wait(
    beside: int, wait: float
) -> None:
    assert after(*[1.0] * MIN_KNOWN).wait(0.5, beside=beside) == wait - 0.5


def test_a_few_slow_answers_do_not_change_what_is_usual() -> None:
    assert after(*[1.0] * 95, *[30.0]).wait(0.0) == 2.0


def test_what_is_usual_follows_a_fleet_that_became_slow() -> None:
    assert after(*[1.0] * 100, *[10.0] * 100).wait(0.0) == 20.0


def hedged(hedging: Hedging, requests: int) -> int:
    """How many of so many requests, all of them stragglers, get a second one."""
    count = 0
    for _ in range(requests):
        hedging.sent()
        if hedging.wait(1_000.0) == 0:
            hedging.spend()
            count += 1
    return count


def test_half_of_what_is_in_flight_may_be_hedged_at_once_and_then_a_twentieth() -> None:
    hedging = after(*[1.0] * MIN_KNOWN, concurrency=64)
    assert hedged(hedging, 32) == 32
    assert hedged(hedging, 1_000) == pytest.approx(50, abs=2)


def test_hedges_that_win_cost_nothing() -> None:
    hedging = after(*[1.0] * MIN_KNOWN, concurrency=64)
    for _ in range(1_000):
        assert hedged(hedging, 2) == 2
        hedging.won(2)


# Against servers.


def pool_on(worker: FakeWorker, *, call_later: Any = None, hedges: int | None = None, **settings: Any) -> Pool:
    """A client; with `hedges` it sends no more than so many, also where a busy machine answers none of them in time."""
    config = RewardConfig(url=worker.url, **settings)
    return injected_pool(config, hedging=partial(quick, hedges), call_later=call_later)


async def test_a_request_that_hangs_is_overtaken_by_a_second_one() -> None:
    async with FakeWorker(hangs) as worker, pool_on(worker, hedges=1) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        report = pool.report()
    assert (report.samples, report.scored, report.attempts, report.retried) == (1, 1, 2, 0)
    assert (report.hedges, report.hedges_won) == (1, 1)


async def test_what_lost_stays_open_so_that_the_router_goes_on_to_count_it_and_ends_with_the_pool() -> None:
    async with FakeWorker(hangs) as worker:
        async with pool_on(worker, hedges=1) as pool:
            assert await pool.score(Sample(text="four")) == 4.0
            assert worker.in_flight == 1
        await worker.idle.wait()


async def test_what_lost_is_closed_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_timer, "LEFT_OPEN_SECONDS", 0.01)
    async with FakeWorker(hangs) as worker, pool_on(worker) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        await asyncio.wait_for(worker.idle.wait(), 4)


async def test_the_two_requests_have_ids_of_their_own() -> None:
    async with FakeWorker(hangs) as worker, pool_on(worker, hedges=1) as pool:
        await pool.score(Sample(text="four"))
    assert [headers["x-request-id"][-2:] for headers in worker.headers] == ["-1", "-2"]


async def test_the_first_request_may_still_win() -> None:
    second = asyncio.Event()

    async def waits_for_the_second(request: Any) -> Any:
        await second.wait()
        return await right(request)

    async def shows_itself_and_hangs(request: Any) -> Any:
        second.set()
        return await hangs(request)

    async with FakeWorker(waits_for_the_second, shows_itself_and_hangs) as worker, pool_on(worker, hedges=1) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        report = pool.report()
    assert (report.hedges, report.hedges_won) == (1, 0)


async def test_a_second_request_that_fails_leaves_the_first_one_its_chance() -> None:
    failed = asyncio.Event()

    async def waits_for_the_failure(request: Any) -> Any:
        await failed.wait()
        return await right(request)

    async def fails(request: Any) -> Any:
        failed.set()
        return await says("not json")(request)

    async with FakeWorker(waits_for_the_failure, fails) as worker, pool_on(worker) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        assert pool.report().retries == {}


async def test_after_a_first_request_that_failed_the_one_beside_it_may_still_win() -> None:
    second = asyncio.Event()

    async def fails_after_the_second_came(request: Any) -> Any:
        await second.wait()
        return await says("", status=500)(request)

    async def slow(request: Any) -> Any:
        second.set()
        await asyncio.sleep(0.02)
        return await right(request)

    async with (
        FakeWorker(fails_after_the_second_came, slow) as worker,
        pool_on(worker, hedges=1, call_later=pauses_for_ever) as pool,
    ):
        assert await pool.score(Sample(text="four")) == 4.0
        report = pool.report()
    assert (report.hedges_won, report.retried) == (1, 0)


async def test_a_failure_is_recovered_at_once_while_the_request_beside_it_sits_at_a_silent_worker() -> None:
    second = asyncio.Event()

    async def fails_after_the_second_came(request: Any) -> Any:
        await second.wait()
        return await says("", status=500)(request)

    async def shows_itself_and_hangs(request: Any) -> Any:
        second.set()
        return await hangs(request)

    async with (
        asyncio.timeout(10),
        FakeWorker(fails_after_the_second_came, shows_itself_and_hangs) as worker,
        pool_on(worker, timeout=240) as pool,
    ):
        assert await pool.score(Sample(text="four")) == 4.0
        report = pool.report()
    assert (report.retries, report.scored) == ({"worker": 1}, 1)


async def test_with_the_last_attempt_failed_the_request_beside_it_still_has_its_chance() -> None:
    failed = asyncio.Event()

    async def fails(request: Any) -> Any:
        await beside.wait()
        failed.set()
        return await says("", status=500)(request)

    beside = asyncio.Event()

    async def waits_for_the_failure(request: Any) -> Any:
        beside.set()
        await failed.wait()
        await asyncio.sleep(0.02)
        return await right(request)

    async with FakeWorker(fails, waits_for_the_failure) as worker, pool_on(worker, max_attempts=1) as pool:
        assert await pool.score(Sample(text="four")) == 4.0


async def test_however_many_fail_the_attempts_are_a_bound_also_with_one_beside_them_that_hangs() -> None:
    second = asyncio.Event()

    async def fails_after_the_second_came(request: Any) -> Any:
        await second.wait()
        return await says("", status=500)(request)

    async def shows_itself_and_hangs(request: Any) -> Any:
        second.set()
        return await hangs(request)

    failing = [says("", status=500)] * 50
    async with (
        FakeWorker(fails_after_the_second_came, shows_itself_and_hangs, *failing) as worker,
        pool_on(worker, max_attempts=3, timeout=1.6) as pool,
    ):
        with pytest.raises(SampleError):
            await pool.score(Sample(text="four"))
        report = pool.report()
    assert report.attempts - report.hedges == 3


async def test_a_second_request_that_hangs_too_is_overtaken_by_a_third() -> None:
    async with FakeWorker(hangs, hangs) as worker, pool_on(worker, hedges=2) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        report = pool.report()
    assert (report.attempts, report.hedges, report.hedges_won) == (3, 2, 1)


async def test_a_fault_of_the_sample_is_an_answer_whoever_says_it() -> None:
    fault = refuses(CallerError(code="invalid_sample", message="empty"))
    async with FakeWorker(hangs, fault) as worker, pool_on(worker) as pool:
        with pytest.raises(InvalidSampleError, match="empty"):
            await pool.score(Sample(text="four"))


async def test_a_judgement_is_hedged_too() -> None:
    answer = says('{"choices": [{"message": {"content": "Good."}}]}')
    async with FakeWorker(hangs, answer) as worker, pool_on(worker) as pool:
        assert await pool.judge([{"role": "user", "content": "Well?"}]) == "Good."


async def test_a_fleet_that_hangs_whole_is_not_asked_for_everything_twice() -> None:
    patience = {"timeout": 0.8, "on_failure": "skip", "breaker_threshold": 1_000}
    async with FakeWorker(*[hangs] * 1_000) as worker, pool_on(worker, concurrency=100, **patience) as pool:
        outcomes = [outcome async for _, outcome in pool.stream([Sample(text="four")] * 100)]
        report = pool.report()
    assert not any(isinstance(outcome, Scored) for outcome in outcomes)
    assert 50 <= report.hedges <= 50 + 0.05 * report.attempts


async def test_after_an_invalid_response_two_requests_are_sent_at_a_time() -> None:
    invalid = says("not json")

    paused: list[float] = []

    def pause(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        paused.append(seconds)
        # Only the answer to the one beside it may end the sample at the second.
        return (no_pause if len(paused) == 1 else pauses_for_ever)(seconds, then)

    async with FakeWorker(invalid, invalid, right) as worker, pool_on(worker, hedges=0, call_later=pause) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        report = pool.report()
    assert (report.attempts, report.hedges, report.retries) == (3, 1, {"invalid_response": 1})


async def test_a_failure_beside_an_attempt_that_another_revision_refused_counts() -> None:
    failed = asyncio.Event()

    async def fails(request: Any) -> Any:
        failed.set()
        return await says("", status=500)(request)

    async def refuses_after_that(request: Any) -> Any:
        await failed.wait()
        await asyncio.sleep(0.05)
        return await right(request)

    script = (right, fails, refuses_after_that)
    async with FakeWorker(*script, revision="r2") as worker, pool_on(worker, hedges=1, max_attempts=1) as pool:
        with pytest.raises(ScoreError, match="no usable answer in 3 attempts"):
            await pool.score(Sample(text="four", revision="r1"))


async def test_hedging_can_be_switched_off() -> None:
    async with FakeWorker(hangs) as worker, pool_on(worker, hedge=False, timeout=0.3) as pool:
        with pytest.raises(DeadlineError, match=r"no score within 0\.3 s, its timeout, and 1 attempts"):
            await pool.score(Sample(text="four"))
