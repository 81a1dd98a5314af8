"""The client against FakeWorker, which shows it every kind of trouble; pauses between attempts take no time here."""

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web
from support.fake_worker import Behaviour, FakeWorker, breaks_off, hangs, refuses, right, says, score_of
from support.pauses import no_pause, pauses_for_ever

from rewardpool import Endpoint, Outcome, Pool, RewardConfig, Sample, Scored, Unscored
from rewardpool._client import request
from rewardpool._client.pool import injected_pool
from rewardpool._discovery.pool_sources import KubernetesSource
from rewardpool.errors import (
    BrokenPoolError,
    DeadlineError,
    FunctionFailedError,
    InvalidSampleError,
    PoolAccessError,
    PoolNotFoundError,
    SampleTooLongError,
    ScoreError,
)
from rewardpool_api.contract import CallerError
from rewardpool_api.job_scores import FailureCounts, JobScores

TOO_LONG = CallerError(code="sample_too_long", message="long", length_tokens=2000, limit_tokens=1024)
UNAVAILABLE = says('{"error": "no_available_workers"}', status=503)
INVALID = says("not json")


def pool_on(worker: FakeWorker, **settings: Any) -> Pool:
    """A client of the worker, whose pauses take no time."""
    return injected_pool(RewardConfig(url=worker.url, **settings), call_later=no_pause)


class Directory:
    """Stands in for discovery: gives out the endpoints it is told, one after the other; the last one stays."""

    def __init__(self, *found: Endpoint | Exception) -> None:
        self._found = list(found)
        self.lookups = 0

    async def __call__(self, _: RewardConfig, **__: Any) -> Endpoint:
        found = self._found[min(self.lookups, len(self._found) - 1)]
        self.lookups += 1
        if isinstance(found, Exception):
            raise found
        return found


def endpoint(url: str, **parts: Any) -> Endpoint:
    return Endpoint(**{"url": url, "pool": "rl/skywork", "served_name": "skywork", "origin": "a test", **parts})


def pool_by(directory: Directory, **settings: Any) -> Pool:
    return injected_pool(RewardConfig(pool="rl/skywork", **settings), find=directory, call_later=no_pause)


@pytest.mark.parametrize(
    ("sample", "score"), [(Sample(text="four"), 4.0), (Sample(token_ids=[1, 2, 3]), 3.0)], ids=["text", "token_ids"]
)
async def test_a_sample_gets_the_workers_number(sample: Sample, score: float) -> None:
    async with FakeWorker() as worker, pool_on(worker) as pool:
        assert await pool.score(sample) == score


@pytest.mark.parametrize("batch", [1, 8])
async def test_a_score_that_the_adapter_did_not_give_is_never_taken(batch: int) -> None:
    """As of a worker that knows no adapters, and scores by the model itself."""
    async with (
        FakeWorker() as worker,
        pool_on(worker, adapter="safe", max_attempts=1, batch=batch, concurrency=1) as pool,
    ):
        scores = await asyncio.gather(*(pool.score(Sample(text=text)) for text in "abc"), return_exceptions=True)
    assert [str(each) for each in scores if "the adapter safe was asked for" in str(each)] == [*map(str, scores)]


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (INVALID, "invalid_response"),
        (says('{"data": [{"embedding": [NaN]}]}'), "invalid_response"),
        (says('{"data": []}'), "invalid_response"),
        (says('{"data": [{"embedding": [1]}, {"embedding": [2]}]}'), "invalid_response"),
        (says("x" * (5 << 20)), "invalid_response"),
        (says("", status=500), "worker"),
        (breaks_off, "worker"),
        (says("", status=408), "busy"),
        (says("", status=429), "busy"),
        (UNAVAILABLE, "busy"),
    ],
)
async def test_trouble_is_retried_and_counted(trouble: Behaviour, kind: str) -> None:
    async with FakeWorker(trouble) as worker, pool_on(worker, hedge=False) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
        report = pool.report()
    assert (report.attempts, report.retried, report.retries, report.scored) == (2, 1, {kind: 1}, 1)


@pytest.mark.parametrize("trouble", [says("", status=500), UNAVAILABLE])
async def test_a_sample_that_pauses_before_its_next_attempt_needs_no_task(trouble: Behaviour) -> None:
    paused = asyncio.Event()

    def pause(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        paused.set()
        return pauses_for_ever(seconds, then)

    async with FakeWorker(trouble) as worker, injected_pool(RewardConfig(url=worker.url), call_later=pause) as pool:
        scoring = asyncio.create_task(pool.score(Sample(text="four")))
        await paused.wait()
        assert tasks_of_the_client() == ["Pool.score"]
        scoring.cancel()
        await asyncio.gather(scoring, return_exceptions=True)
        assert pool.report().cancelled == 1


async def test_a_sample_whose_pause_ends_after_the_pool_was_closed_says_so() -> None:
    paused = asyncio.Event()

    def pause(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        paused.set()
        return asyncio.get_running_loop().call_later(seconds, then)

    async with FakeWorker(says("", status=500)) as worker:
        async with injected_pool(RewardConfig(url=worker.url), call_later=pause) as pool:
            scoring = asyncio.create_task(pool.score(Sample(text="four")))
            await paused.wait()
        with pytest.raises(RuntimeError, match="the pool is closed"):
            await scoring


async def test_a_retry_leaves_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeWorker(INVALID) as worker, pool_on(worker) as pool:
        await pool.score(Sample(text="four", id="rollout-7"))
    assert "rollout-7" in caplog.text
    assert "not JSON" in caplog.text


async def test_a_failing_worker_ends_in_an_error_after_the_configured_attempts() -> None:
    async with FakeWorker(*[says("trouble", status=500)] * 3) as worker, pool_on(worker, max_attempts=3) as pool:
        with pytest.raises(ScoreError, match="sample s: no usable answer in 3 attempts; last: HTTP 500: trouble"):
            await pool.score(Sample(text="four", id="s"))


async def test_invalid_responses_are_borne_twice_as_often_and_then_an_error() -> None:
    async with FakeWorker(*[INVALID] * 6) as worker, pool_on(worker, max_attempts=3, hedge=False) as pool:
        with pytest.raises(ScoreError, match="sample s: no usable answer in 6 attempts; last: the answer is not JSON"):
            await pool.score(Sample(text="four", id="s"))


async def test_an_absent_pool_is_not_given_up_before_the_deadline() -> None:
    async with FakeWorker(*[UNAVAILABLE] * 30) as worker, pool_on(worker, max_attempts=1) as pool:
        assert await pool.score(Sample(text="four")) == 4.0


async def test_the_deadline_is_over_all_attempts_and_names_the_last_trouble() -> None:
    says = r"sample s: no score within 0\.6 s, its timeout, and 2 attempts; last: HTTP 503"
    async with FakeWorker(UNAVAILABLE, hangs) as worker, pool_on(worker, timeout=0.6) as pool:
        with pytest.raises(DeadlineError, match=says):
            await pool.score(Sample(text="four", id="s"))


async def test_an_attempt_lasts_as_long_as_the_deadline_of_its_sample() -> None:
    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(0.6)
        return await right(request)

    async with FakeWorker(slow) as worker, pool_on(worker, timeout=1.0) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
    assert len(worker.requests) == 1


@pytest.mark.parametrize(
    ("code", "error"), [("invalid_sample", InvalidSampleError), ("function_failed", FunctionFailedError)]
)
async def test_a_fault_of_the_sample_is_not_retried(code: Any, error: type[Exception]) -> None:
    fault = refuses(CallerError(code=code, message="KeyError: 'answer'"))
    async with FakeWorker(fault) as worker, pool_on(worker) as pool:
        with pytest.raises(error, match="KeyError: 'answer'"):
            await pool.score(Sample(text="four"))
    assert len(worker.requests) == 1


async def test_tokens_over_the_limit_fail_before_they_are_sent() -> None:
    async with FakeWorker() as worker, pool_by(Directory(endpoint(worker.url, max_model_len=4))) as pool:
        assert await pool.score(Sample(token_ids=[0] * 4)) == 4.0
        with pytest.raises(SampleTooLongError) as caught:
            await pool.score(Sample(token_ids=[0] * 5, id="s"))
    assert (caught.value.sample, caught.value.length_tokens, caught.value.limit_tokens) == ("s", 5, 4)
    assert len(worker.requests) == 1


@pytest.mark.parametrize(("model_type", "problem"), [("Function", "takes function"), ("Generative", "use judge")])
async def test_a_sample_of_the_wrong_kind_is_refused_before_it_is_sent(model_type: Any, problem: str) -> None:
    async with FakeWorker() as worker, pool_by(Directory(endpoint(worker.url, model_type=model_type))) as pool:
        with pytest.raises(InvalidSampleError, match=problem):
            await pool.score(Sample(text="four"))
    assert worker.requests == []


async def test_a_further_attempt_sends_the_bytes_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []
    to_json = request.to_json
    monkeypatch.setattr(request, "to_json", lambda content: encoded.append(content) or to_json(content))
    async with FakeWorker(breaks_off, UNAVAILABLE) as worker, pool_on(worker) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
    assert (len(worker.headers), len(encoded)) == (3, 1)


async def test_every_attempt_has_a_request_id_of_its_own() -> None:
    async with FakeWorker(says("", status=500)) as worker, pool_on(worker) as pool:
        await pool.score(Sample(text="four"))
    first, second = (headers["x-request-id"] for headers in worker.headers)
    assert first.removesuffix("-1") == second.removesuffix("-2")


async def test_a_judge_answers_in_words() -> None:
    answer = says('{"choices": [{"message": {"content": "Good."}}]}')
    async with FakeWorker(answer) as worker, pool_by(Directory(endpoint(worker.url, model_type="Generative"))) as pool:
        assert await pool.judge([{"role": "user", "content": "Well?"}], max_tokens=5) == "Good."
    assert worker.requests == [
        {"model": "skywork", "messages": [{"role": "user", "content": "Well?"}], "max_tokens": 5}
    ]


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    async with FakeWorker(says("", status=307)) as worker, pool_on(worker) as pool:
        with pytest.raises(BrokenPoolError, match="HTTP 307"):
            await pool.score(Sample(text="four"))


# A pool that moves, or changes its key.


async def test_a_pool_that_moved_is_found_again() -> None:
    async with FakeWorker() as gone:
        pass
    async with FakeWorker() as worker:
        directory = Directory(endpoint(gone.url), endpoint(worker.url))
        async with pool_by(directory) as pool:
            assert await pool.score(Sample(text="four")) == 4.0
            assert pool.report().rediscoveries == 1


async def test_another_server_at_the_old_address_is_left_for_the_new_one() -> None:
    async with (
        FakeWorker(says("", status=404)) as other,
        FakeWorker() as worker,
        pool_by(Directory(endpoint(other.url), endpoint(worker.url))) as pool,
    ):
        assert await pool.score(Sample(text="four")) == 4.0


async def test_an_address_that_is_no_pool_is_an_error_that_says_where_it_came_from() -> None:
    async with FakeWorker(says("", status=404)) as other, pool_by(Directory(endpoint(other.url))) as pool:
        with pytest.raises(BrokenPoolError, match="found by a test is not a reward pool"):
            await pool.score(Sample(text="four"))


async def test_a_thousand_failing_samples_are_one_look_up() -> None:
    async with FakeWorker(*[says("", status=404)] * 100) as other, FakeWorker() as worker:
        directory = Directory(endpoint(other.url), endpoint(worker.url))
        async with pool_by(directory, concurrency=100) as pool:
            await asyncio.gather(*(pool.score(Sample(text="four")) for _ in range(100)))
    assert directory.lookups == 2


async def test_a_look_up_that_fails_does_not_end_the_sample() -> None:
    async with FakeWorker() as gone:
        pass
    async with pool_by(Directory(endpoint(gone.url), PoolNotFoundError("deleted")), timeout=0.2) as pool:
        with pytest.raises(DeadlineError, match=r"cannot be reached: .*; looking it up again: deleted"):
            await pool.score(Sample(text="four"))


async def test_a_key_that_was_changed_is_read_again_once() -> None:
    async with FakeWorker(says("", status=401)) as worker:
        directory = Directory(endpoint(worker.url, key="old"), endpoint(worker.url, key="new"))
        async with pool_by(directory) as pool:
            assert await pool.score(Sample(text="four")) == 4.0
    assert [headers["authorization"] for headers in worker.headers] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_wrong_is_an_error_under_every_policy(status: int) -> None:
    async with (
        FakeWorker(*[says("", status=status)] * 9) as worker,
        pool_by(Directory(endpoint(worker.url, key="the-key")), on_failure="skip") as pool,
    ):
        with pytest.raises(PoolAccessError, match="does not take the key found by a test") as caught:
            await pool.outcome(Sample(text="four"))
    assert "the-key" not in str(caught.value)


# Failure policies.


async def test_skip_hands_the_sample_back_without_a_value() -> None:
    async with FakeWorker(refuses(TOO_LONG)) as worker, pool_on(worker, on_failure="skip") as pool:
        outcome = await pool.outcome(Sample(text="four", id="s"))
        report = pool.report()
    assert isinstance(outcome, Unscored)
    assert isinstance(outcome.error, SampleTooLongError)
    assert not hasattr(outcome, "value")
    assert (report.samples, report.scored, report.unscored) == (1, 0, 1)


PENALTY = {"policy": {"penalty": -1.0}, "verifier": "skip", "infra": "skip", "capacity": "skip"}


async def test_a_penalty_is_marked_with_its_cause_and_counted() -> None:
    async with FakeWorker(right, refuses(TOO_LONG)) as worker, pool_on(worker, on_failure=PENALTY) as pool:
        await pool.outcome(Sample(text="x"))
        outcome = await pool.outcome(Sample(text="four"))
        report = pool.report()
    assert isinstance(outcome, Scored)
    assert (outcome.value, type(outcome.penalised_for)) == (-1.0, SampleTooLongError)
    assert (report.scored, report.penalties, report.unscored) == (1, 1, 0)
    assert report.failures == {"policy": {"sample_too_long": 1}}


async def test_announced_scores_are_raw_and_a_sample_without_one_is_in_no_mean() -> None:
    script = (right, refuses(TOO_LONG), says("", status=503))
    async with FakeWorker(*script) as worker, pool_on(worker, on_failure=PENALTY) as pool:
        assert pool._counters.job_scores() is None
        for text in ("x", "four", "xxx"):
            await pool.outcome(Sample(text=text))
        scores = pool._counters.job_scores()
    assert scores == JobScores(count=2, mean=2.0, standard_deviation=1.0, failures=FailureCounts(policy=1), retries=1)


async def test_a_penalty_before_the_first_score_waits_for_it() -> None:
    async with FakeWorker(refuses(TOO_LONG)) as worker, pool_on(worker, on_failure=PENALTY) as pool:
        penalised = asyncio.create_task(pool.outcome(Sample(text="four")))
        await worker.arrived.wait()
        await worker.idle.wait()
        assert isinstance(await pool.outcome(Sample(text="x")), Scored)
        outcome = await penalised
    assert isinstance(outcome, Scored)
    assert outcome.value == -1.0


async def first_is_too_long(pool: Pool) -> tuple[Outcome, Outcome]:
    """Two samples one after the other, of which the worker refuses the first."""
    return await pool.outcome(Sample(text="four")), await pool.outcome(Sample(text="x"))


async def test_a_penalty_that_nothing_under_way_can_prove_is_unscored_at_once() -> None:
    async with FakeWorker(refuses(TOO_LONG)) as worker, pool_on(worker, on_failure=PENALTY) as pool:
        async with asyncio.timeout(10):  # the sample's own is 120 s
            first, second = await first_is_too_long(pool)
        report = pool.report()
    assert (type(first), type(second)) == (Unscored, Scored)
    assert (report.samples, report.scored, report.unscored, report.penalties) == (2, 1, 1, 0)


async def test_a_sample_that_waits_for_a_proof_holds_no_place() -> None:
    async with FakeWorker(refuses(TOO_LONG)) as worker, pool_on(worker, on_failure=PENALTY, concurrency=1) as pool:
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*(pool.outcome(Sample(text=text)) for text in ("four", "x")))
    assert [outcome.value for outcome in outcomes if isinstance(outcome, Scored)] == [-1.0, 1.0]


async def test_a_stream_whose_first_sample_is_too_long_gives_it_the_penalty() -> None:
    async with FakeWorker(refuses(TOO_LONG)) as worker, pool_on(worker, on_failure=PENALTY, concurrency=1) as pool:
        async with asyncio.timeout(10):
            ends = {index: end async for index, end in pool.stream(Sample(text=text) for text in ("four", "x"))}
    assert {index: end.value for index, end in ends.items() if isinstance(end, Scored)} == {0: -1.0, 1: 1.0}


async def test_what_is_raised_to_the_caller_waits_for_no_proof() -> None:
    async with FakeWorker(refuses(TOO_LONG), hangs) as worker, pool_on(worker, on_failure=PENALTY) as pool:
        with pytest.raises(SampleTooLongError):
            async with asyncio.timeout(10):
                await asyncio.gather(pool.scored(Sample(text="four")), pool.scored(Sample(text="x")))


async def test_who_gives_up_a_held_sample_is_not_called_back() -> None:
    async with FakeWorker(refuses(TOO_LONG)) as worker, pool_on(worker, on_failure=PENALTY) as pool:
        held = asyncio.create_task(pool.outcome(Sample(text="four")))
        await worker.arrived.wait()
        await worker.idle.wait()
        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held
        assert isinstance(await pool.outcome(Sample(text="x")), Scored)


async def test_score_raises_also_where_a_sample_would_be_skipped() -> None:
    async with FakeWorker(refuses(TOO_LONG)) as worker, pool_on(worker, on_failure="skip") as pool:
        with pytest.raises(SampleTooLongError):
            await pool.score(Sample(text="four"))


# Streams.


def texts(count: int) -> Iterator[Sample]:
    return (Sample(text="x" * length) for length in range(1, count + 1))


async def test_a_stream_yields_every_index_once_with_its_own_score() -> None:
    async with FakeWorker() as worker, pool_on(worker, concurrency=8) as pool:
        outcomes = [item async for item in pool.stream(texts(100))]
    assert {index: outcome.value for index, outcome in outcomes if isinstance(outcome, Scored)} == {
        index: score_of("x" * (index + 1)) for index in range(100)
    }
    assert len(outcomes) == 100


async def test_a_stream_yields_what_is_ready_first_first() -> None:
    async def slow(request: Any) -> Any:
        await asyncio.sleep(0.1)
        return await right(request)

    async with FakeWorker(slow) as worker, pool_on(worker) as pool:
        first = [index async for index, _ in pool.stream(texts(3))]
    assert first[-1] == 0


async def test_what_a_stream_makes_its_reader_wait_is_counted() -> None:
    async with FakeWorker() as worker, pool_on(worker) as pool:
        assert [index async for index, _ in pool.stream(texts(1))] == [0]
        assert pool.report().exposed_wait_seconds > 0


async def test_a_stream_scores_while_the_next_rollout_is_still_running() -> None:
    scored = asyncio.Event()

    async def rollouts() -> AsyncIterator[Sample]:
        yield Sample(text="one")
        await scored.wait()  # the second rollout ends only after the first was scored
        yield Sample(text="two")

    async with FakeWorker() as worker, pool_on(worker) as pool:
        seen = []
        async for index, _ in pool.stream(rollouts()):
            seen.append(index)
            scored.set()
    assert seen == [0, 1]


async def test_an_endless_input_is_read_only_as_there_is_room() -> None:
    read = 0

    def endless() -> Iterator[Sample]:
        nonlocal read
        while True:
            read += 1
            yield Sample(text="x")

    async with FakeWorker() as worker, pool_on(worker, concurrency=4, batch=2) as pool:
        async with aclosing(pool.stream(endless())) as stream:
            async for index, _ in stream:
                assert read <= index + 2 * 4 * 2 + 4
                if index > 50:
                    break
        assert worker.most_in_flight <= 4


async def test_what_is_read_is_sent_while_a_long_plain_input_is_read_on() -> None:
    read = 0

    def many() -> Iterator[Sample]:
        nonlocal read
        for _ in range(5000):
            read += 1
            yield Sample(text="x")

    async with (
        FakeWorker() as worker,
        pool_on(worker, concurrency=2500) as pool,
        aclosing(pool.stream(many())) as stream,
    ):
        await anext(stream)
        assert read < 5000


async def objects_of_a_stream(count: int) -> int:
    """Which the garbage collector follows while 16 of so many samples are at a silent worker."""
    samples = [Sample(text="x") for _ in range(count)]
    async with FakeWorker(*[hangs] * 16) as worker, pool_on(worker, concurrency=16, batch=64) as pool:
        gc.collect()
        before = len(gc.get_objects())
        async with aclosing(pool.stream(samples)) as stream:
            first = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.2)
            gc.collect()
            added = len(gc.get_objects()) - before
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
    return added


async def test_a_sample_that_waits_is_one_object_for_the_garbage_collector() -> None:
    await objects_of_a_stream(16)  # the first one fills caches
    few, many = await objects_of_a_stream(500), await objects_of_a_stream(1500)
    assert 950 <= many - few < 1300  # what the first stream left behind may be freed meanwhile


async def test_a_sample_that_is_too_long_does_not_stop_the_others_under_skip() -> None:
    async with FakeWorker(refuses(TOO_LONG)) as worker, pool_on(worker, on_failure="skip", concurrency=1) as pool:
        outcomes = dict([item async for item in pool.stream(texts(5))])
    assert [index for index, outcome in outcomes.items() if isinstance(outcome, Unscored)] == [0]
    assert sum(isinstance(outcome, Scored) for outcome in outcomes.values()) == 4


async def test_raise_ends_the_stream_with_the_samples_error_and_leaves_nothing_running() -> None:
    async with FakeWorker(hangs, hangs, refuses(TOO_LONG)) as worker, pool_on(worker, concurrency=3) as pool:
        with pytest.raises(SampleTooLongError, match="sample #2: has 2000 tokens and the model takes at most 1024"):
            async for _ in pool.stream(texts(3)):
                pass
        assert tasks_of_the_client() == []
        assert pool.report().cancelled == 2


async def test_leaving_a_stream_early_leaves_nothing_running() -> None:
    async with FakeWorker(hangs, hangs) as worker, pool_on(worker) as pool:
        async with aclosing(pool.stream(texts(3))) as stream:
            async for _ in stream:
                break
        assert tasks_of_the_client() == []


async def test_an_input_that_raises_raises_out_of_the_stream() -> None:
    async def rollouts() -> AsyncIterator[Sample]:
        yield Sample(text="one")
        raise OSError("the rollout engine died")

    async with FakeWorker() as worker, pool_on(worker) as pool:
        with pytest.raises(OSError, match="the rollout engine died"):
            async for _ in pool.stream(rollouts()):
                pass


async def test_cancelling_a_score_cancels_its_request() -> None:
    async with FakeWorker(hangs) as worker, pool_on(worker) as pool:
        task = asyncio.create_task(pool.score(Sample(text="four")))
        await worker.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(worker.idle.wait(), 5)
        assert pool.report().cancelled == 1


async def test_an_empty_stream_ends() -> None:
    async with FakeWorker() as worker, pool_on(worker) as pool:
        assert [item async for item in pool.stream([])] == []


async def test_a_pool_that_was_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Pool(RewardConfig(url="http://there:1")).score(Sample(text="four"))


def tasks_of_the_client() -> list[str]:
    """The coroutines of the client that still run."""
    names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
    return [name for name in names if name.startswith(("Pool.", "Stream.", "ScoreRequest.", "HttpClient."))]


async def test_a_pool_whose_end_is_cancelled_is_closed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    said, may_end = threading.Event(), threading.Event()

    def end() -> None:
        said.set()
        may_end.wait(10)

    async with FakeWorker() as worker:
        pool = await Pool(RewardConfig(url=worker.url)).__aenter__()
        monkeypatch.setattr(pool.job_demand, "end", end)
        leaving = asyncio.create_task(pool.__aexit__(None, None, None))
        assert await asyncio.to_thread(said.wait, 10)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        may_end.set()
        with pytest.raises(RuntimeError, match="the pool is closed"):
            await pool.score(Sample(text="four"))


# Deadlines, kept connections, and what a server asks for.


async def test_no_sample_outlives_its_deadline_however_many_wait_before_it_while_the_pool_answers_nobody() -> None:
    loop = asyncio.get_running_loop()
    settings = {"concurrency": 1, "timeout": 0.4, "on_failure": "skip"}
    async with FakeWorker(*[hangs] * 50) as worker, pool_on(worker, **settings) as pool:
        began = loop.time()
        outcomes = await asyncio.gather(*(pool.outcome(Sample(text="four")) for _ in range(8)))
        seconds, report = loop.time() - began, pool.report()
    assert all(isinstance(outcome, Unscored) and isinstance(outcome.error, DeadlineError) for outcome in outcomes)
    assert seconds < 2 * 0.4
    assert (report.samples, report.unscored) == (8, 8)


async def test_a_sample_that_waits_behind_others_that_are_answered_does_not_use_up_its_deadline() -> None:
    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return await right(request)

    settings = {"concurrency": 1, "timeout": 0.5}
    async with FakeWorker(*[slow] * 10) as worker, pool_on(worker, **settings) as pool:
        assert await asyncio.gather(*(pool.score(Sample(text="four")) for _ in range(10))) == [4.0] * 10


@pytest.mark.parametrize("batch", [1, 4])
async def test_a_deadline_in_the_queue_ends_batches_too(batch: int) -> None:
    settings = {"concurrency": 1, "timeout": 0.4, "on_failure": "skip", "batch": batch, "breaker_threshold": 100}
    async with FakeWorker(*[hangs] * 50) as worker, pool_on(worker, **settings) as pool, asyncio.timeout(2):
        outcomes = await asyncio.gather(*(pool.outcome(Sample(text="four")) for _ in range(20)))
        report = pool.report()
    assert all(isinstance(outcome, Unscored) for outcome in outcomes)
    assert report.samples == report.unscored == 20


async def test_kept_connections_that_the_server_closed_are_no_failures_of_the_sample() -> None:
    all_came = asyncio.Barrier(8)

    async def waits_for_the_others(request: web.Request) -> web.Response:
        await all_came.wait()
        return await right(request)

    script = [*[waits_for_the_others] * 8, *[breaks_off] * 8]
    async with FakeWorker(*script) as worker, pool_on(worker, max_attempts=1, hedge=False) as pool:
        await asyncio.gather(*(pool.score(Sample(text="four")) for _ in range(8)))  # eight connections are open now
        assert await asyncio.gather(*(pool.score(Sample(text="four")) for _ in range(8))) == [4.0] * 8
        report = pool.report()
        assert (report.attempts, report.retries) == (16, {})


async def test_a_connection_that_breaks_twice_counts_when_it_was_new() -> None:
    async with (
        FakeWorker(right, breaks_off, breaks_off) as worker,
        pool_on(worker, max_attempts=1, hedge=False) as pool,
    ):
        await pool.score(Sample(text="four"))
        with pytest.raises(ScoreError, match="the connection broke"):
            await pool.score(Sample(text="four"))


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_says_when_to_come_again_is_obeyed(status: int) -> None:
    paused: list[float] = []

    def pause(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        paused.append(seconds)
        return no_pause(seconds, then)

    async def later(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": "7"})

    async with FakeWorker(later) as worker, injected_pool(RewardConfig(url=worker.url), call_later=pause) as pool:
        assert await pool.score(Sample(text="four")) == 4.0
    [seconds] = paused
    assert 7.0 <= seconds <= 7.25


def of_another_request(score: float) -> Behaviour:
    """Answers as an intermediary that mixes up the answers of two requests."""
    return says(json.dumps({"data": [{"index": 0, "embedding": [score]}], "request_id": "r-2", "revision": "5f1c"}))


OURS = KubernetesSource({})
"""Where a pool's object may be; no test asks it."""


@pytest.mark.parametrize("stray", [of_another_request(99.0), says('{"data": [{"index": 0, "embedding": [99]}]}')])
async def test_a_stray_answer_is_never_a_score(stray: Behaviour) -> None:
    async with FakeWorker(right, revision="5f1c") as worker, FakeWorker(stray, revision=None) as other:
        directory = Directory(endpoint(other.url, source=OURS), endpoint(worker.url, source=OURS))
        async with pool_by(directory, hedge=False, max_attempts=1) as pool:
            with pytest.raises(ScoreError, match=r"the answer (is to|does not repeat)"):
                await pool.score(Sample(text="four"))


async def test_a_score_says_which_revision_it_is_of() -> None:
    async with FakeWorker(revision="5f1c") as worker, pool_by(Directory(endpoint(worker.url, source=OURS))) as pool:
        scored = await pool.scored(Sample(text="four"))
    assert (scored.value, scored.revision) == (4.0, "5f1c")


async def test_all_attempts_of_a_request_have_one_id() -> None:
    async with FakeWorker(INVALID, UNAVAILABLE, right) as worker, pool_on(worker, hedge=False) as pool:
        await pool.score(Sample(text="four"))
    assert len({headers["x-correlation-id"] for headers in worker.headers}) == 1
    assert len({headers["x-request-id"] for headers in worker.headers}) == 3
