"""A broken pool is an error of the pool under every failure policy; a sample that fails by itself is its own."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from support.fake_worker import Behaviour, FakeWorker, hangs, refuses, right, says
from support.pauses import short_pause

from rewardpool import Pool, RewardConfig, Sample, Scored, Unscored
from rewardpool._client.pool import injected_pool
from rewardpool._client.rules.breaker import PATIENCE, Breaker
from rewardpool.errors import (
    BrokenPoolError,
    DeadlineError,
    InvalidSampleError,
    PoolError,
    PoolNotReadyError,
    SampleError,
    SampleTooLongError,
    ScoreError,
    WrongModelError,
)
from rewardpool_api.contract import FAULTS, CallerError

BAD_SAMPLE = says("this one is bad", status=400)
ODD = refuses(CallerError(code="invalid_sample", message="odd"))
RAISES = refuses(CallerError(code="function_failed", message="ValueError: no"))
TOO_LONG = refuses(CallerError(code="sample_too_long", message="too long"))
WRONG_MODEL = refuses(CallerError(code="wrong_model", message="there is no model 'x' here", served="skywork"))
PENALTY = {"policy": {"penalty": 0.0}, "verifier": "skip", "infra": "skip", "capacity": "skip"}


def pool_on(worker: FakeWorker, **settings: Any) -> Pool:
    return injected_pool(RewardConfig(url=worker.url, on_failure=PENALTY, **settings), call_later=short_pause)


def embedding(numbers: str) -> Behaviour:
    return says(f'{{"data": [{{"index": 0, "embedding": [{numbers}]}}]}}')


@pytest.mark.parametrize(
    ("behaviour", "settings", "error", "words"),
    [
        (WRONG_MODEL, {"served_name": "x"}, WrongModelError, "'skywork'.*'x' was requested"),
        (WRONG_MODEL, {}, WrongModelError, "'skywork'.*'unknown' was requested: set served_name to 'skywork'"),
        (says("trouble", status=500), {}, BrokenPoolError, "by worker .infra.*HTTP 500"),
        (says("bad gateway", status=502), {"timeout": 2.0}, BrokenPoolError, "by busy .infra.*HTTP 502"),
        (says("overloaded", status=503), {"timeout": 2.0}, BrokenPoolError, "by busy .capacity.*HTTP 503"),
        (says("<html>Welcome</html>"), {}, BrokenPoolError, "by invalid_response .infra.*not JSON"),
        (embedding("NaN"), {}, BrokenPoolError, "by invalid_response .infra"),
        (embedding(", ".join(["0.5"] * 768)), {}, BrokenPoolError, "by invalid_response .infra.*768 numbers"),
        (RAISES, {}, BrokenPoolError, "by function_failed .verifier.*ValueError: no"),
        (ODD, {}, BrokenPoolError, "by invalid_sample .verifier"),
        (TOO_LONG, {}, BrokenPoolError, "by sample_too_long .policy"),
        (hangs, {"timeout": 0.5}, BrokenPoolError, "by no_answer"),
        *((says("nginx", status=status), {}, BrokenPoolError, f"{status}") for status in (404, 405, 301, 410, 501)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_broken_pool_scores_none_of_a_hundred_samples_and_ends_the_job(
    behaviour: Behaviour, settings: dict[str, Any], error: type[PoolError], words: str
) -> None:
    async with FakeWorker(afterwards=behaviour) as worker, pool_on(worker, **settings) as pool:
        ends = await asyncio.gather(*(pool.outcome(Sample(text="x")) for _ in range(100)), return_exceptions=True)
        report = pool.report()
    assert not [end for end in ends if isinstance(end, Scored)]
    assert {type(end) for end in ends if not isinstance(end, Unscored)} == {error}
    # Of a pool that only lets samples wait, those in flight and those in the queue fail by two kinds.
    assert len([end for end in ends if isinstance(end, Unscored)]) < 2 * RewardConfig().breaker_threshold
    with pytest.raises(error, match=words):
        raise next(end for end in ends if isinstance(end, PoolError))
    assert (report.samples, report.unscored, report.penalties) == (100, 100, 0)
    assert sum(sum(kinds.values()) for kinds in report.failures.values()) == 100


async def test_an_address_where_nothing_listens_ends_the_job() -> None:
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
    assert [type(end) for end in ends] == [Scored] + [Unscored] * 3 + [BrokenPoolError]


async def test_bad_samples_among_good_ones_are_none_of_the_pools() -> None:
    ends = await failures_of([BAD_SAMPLE, BAD_SAMPLE, right] * 5, breaker_threshold=3)
    assert [type(end) for end in ends] == [Unscored, Unscored, Scored] * 5


async def test_the_rollouts_of_one_bad_prompt_do_not_end_the_job() -> None:
    ends = await failures_of([right, *[RAISES] * 16, right], breaker_threshold=5)
    assert [type(end) for end in ends] == [Scored, *[Unscored] * 16, Scored]


async def test_a_function_that_stops_scoring_ends_the_job() -> None:
    ends = await failures_of([right, *[RAISES] * 4 * PATIENCE], breaker_threshold=4)
    assert [type(end) for end in ends] == [Scored] + [Unscored] * (4 * PATIENCE - 1) + [BrokenPoolError]


async def test_a_policy_that_only_writes_too_much_gets_its_penalty_for_as_long_as_it_does() -> None:
    ends = await failures_of([right, *[TOO_LONG] * 50], breaker_threshold=3)
    assert {type(end) for end in ends} == {Scored}


async def test_a_404_after_a_score_is_one_samples() -> None:
    ends = await failures_of([right, says("", status=404), right], breaker_threshold=3)
    assert [type(end) for end in ends] == [Scored, Unscored, Scored]


async def test_an_answer_of_any_other_kind_does_not_prove_a_pool() -> None:
    async with FakeWorker(says("{}"), ODD, ODD) as worker, pool_on(worker, breaker_threshold=2) as pool:
        await pool.post("/v1/embeddings", {"input": "x"})
        assert isinstance(await pool.outcome(Sample(text="x")), Unscored)
        with pytest.raises(BrokenPoolError, match="and scored none"):
            await pool.outcome(Sample(text="x"))


def error_of(kind: str, fault: str) -> SampleError:
    return ScoreError("s", "failed", kind=kind, fault=fault)  # type: ignore[arg-type]  # drawn


@given(
    st.lists(
        st.one_of(st.just("score"), st.tuples(st.sampled_from(["worker", "unreadable"]), st.sampled_from(FAULTS)))
    ),
    st.integers(1, 8),
)
def test_before_the_first_score_it_opens_at_the_threshold_of_a_kind_and_later_by_the_fault(
    course: list[Any], threshold: int
) -> None:
    breaker = Breaker(threshold)
    counts = {"worker": 0, "unreadable": 0}
    proven = False
    for one in course:
        if one == "score":
            breaker.scored()
            counts, proven = dict.fromkeys(counts, 0), True
            continue
        kind, fault = one
        counts[kind] += 1
        limit = threshold * (PATIENCE if proven and fault == "verifier" else 1)
        opens = counts[kind] >= limit and not (proven and fault == "policy")
        assert isinstance(breaker.failed(error_of(kind, fault), where="there"), PoolError) == opens


def test_two_kinds_of_failure_in_turn_open_it_too() -> None:
    breaker = Breaker(3)
    ends = [breaker.failed(error_of(kind, "infra"), where="there") for kind in ["worker", "invalid_response"] * 3]
    assert [isinstance(end, PoolError) for end in ends] == [False] * 4 + [True] * 2


@pytest.mark.parametrize(
    ("error", "fault", "kind"),
    [
        (SampleTooLongError("s", 2, 1), "policy", "sample_too_long"),
        (InvalidSampleError("s", "malformed"), "verifier", "invalid_sample"),
        (ScoreError("s", "broken"), "infra", "no_score"),
        (DeadlineError("s", 1.0, 0, "none", fault="capacity"), "capacity", "no_answer"),
    ],
)
def test_every_error_says_its_fault_and_its_kind(error: SampleError, fault: str, kind: str) -> None:
    assert (error.fault, error.kind) == (fault, kind)


async def test_an_error_of_the_pool_is_counted_once() -> None:
    async def not_here(_: web.Request) -> web.StreamResponse:
        return web.Response(status=405)

    async with FakeWorker(not_here) as worker, pool_on(worker) as pool:
        with pytest.raises(BrokenPoolError, match="405"):
            await pool.outcome(Sample(text="x"))
        report = pool.report()
    assert (report.samples, report.unscored, report.penalties) == (1, 1, 0)
    assert report.failures == {"infra": {"not_found": 1}}
