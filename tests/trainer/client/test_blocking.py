"""BlockingPool against FakeWorker, which lives on the test's own event loop while threads call the pool."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from aiohttp import web
from support.fake_worker import FakeWorker, hangs, refuses

from rewardpool import BlockingPool, RewardConfig, Sample, Scored
from rewardpool.errors import PoolNotFoundError, SampleTooLongError
from rewardpool_api.contract import CallerError

T = TypeVar("T")
TOO_LONG = CallerError(code="sample_too_long", message="long", length_tokens=9, limit_tokens=8)


async def with_pool(worker: FakeWorker, use: Callable[[BlockingPool], T], **settings: Any) -> T:
    """What `use` makes of a pool, in a thread that may block."""

    def run() -> T:
        with BlockingPool(RewardConfig(url=worker.url, **settings)) as pool:
            return use(pool)

    return await asyncio.to_thread(run)


async def test_submitted_samples_are_futures() -> None:
    def use(pool: BlockingPool) -> list[Any]:
        futures = [pool.submit(Sample(text="x" * length)) for length in range(20)]
        return [future.result() for future in futures]

    async with FakeWorker() as worker:
        outcomes = await with_pool(worker, use)
    assert [outcome.value for outcome in outcomes] == [float(length) for length in range(20)]


async def test_one_failed_future_leaves_the_others_alone_under_raise() -> None:
    def use(pool: BlockingPool) -> tuple[BaseException | None, Any]:
        first = pool.submit(Sample(text="a"))
        second = pool.submit(Sample(text="bb"))
        return first.exception(), second.result()

    async with FakeWorker(refuses(TOO_LONG)) as worker:
        error, outcome = await with_pool(worker, use, concurrency=1)
    assert isinstance(error, SampleTooLongError)
    assert isinstance(outcome, Scored)


async def test_a_submitted_sample_needs_no_task() -> None:
    async def tasks() -> int:
        return len(asyncio.all_tasks())

    async def use(pool: BlockingPool) -> None:
        before = await asyncio.wrap_future(pool.start(tasks()))
        futures = [pool.submit(Sample(text="four")) for _ in range(8)]
        await asyncio.wait_for(have_come.wait(), 5)
        assert await asyncio.wrap_future(pool.start(tasks())) == before
        for future in futures:
            future.cancel()
        await asyncio.wait_for(worker.idle.wait(), 5)

    have_come = asyncio.Event()

    async def comes_and_hangs(request: web.Request) -> web.Response:
        if len(worker.requests) == 8:
            have_come.set()
        return await hangs(request)

    async with FakeWorker(*[comes_and_hangs] * 8) as worker:
        pool = await asyncio.to_thread(BlockingPool, RewardConfig(url=worker.url, hedge=False))
        try:
            await use(pool)
        finally:
            await asyncio.to_thread(pool.close)


async def test_a_sample_that_cannot_be_asked_for_is_an_error_of_its_own_future(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def use(pool: BlockingPool) -> tuple[BaseException | None, Any]:
        monkeypatch.setattr(pool.opened.job_demand, "sample_comes", _raise_once)
        return pool.submit(Sample(text="a")).exception(10), pool.submit(Sample(text="bb")).result(10)

    raised: list[bool] = []

    def _raise_once(*, tokens: int | None) -> None:
        if not raised:
            raised.append(True)
            raise ConnectionError("gone")

    async with FakeWorker() as worker:
        error, outcome = await with_pool(worker, use)
    assert isinstance(error, ConnectionError)
    assert isinstance(outcome, Scored)


async def test_a_stream_of_a_thread_yields_every_index_once() -> None:
    def use(pool: BlockingPool) -> dict[int, Any]:
        return dict(pool.stream(Sample(text="x" * length) for length in range(50)))

    async with FakeWorker() as worker:
        outcomes = await with_pool(worker, use, concurrency=4)
    assert {index: outcome.value for index, outcome in outcomes.items()} == {index: float(index) for index in range(50)}


async def test_a_failed_sample_raises_out_of_a_threads_stream() -> None:
    def use(pool: BlockingPool) -> None:
        for _ in pool.stream([Sample(text="a"), Sample(text="b")]):
            pass

    async with FakeWorker(refuses(TOO_LONG), hangs) as worker:
        with pytest.raises(SampleTooLongError):
            await with_pool(worker, use)


async def test_closing_gives_up_what_is_in_flight_and_ends_the_thread() -> None:
    def use(pool: BlockingPool) -> concurrent.futures.Future[Any]:
        return pool.submit(Sample(text="four"))

    async with FakeWorker(hangs) as worker:
        future = await with_pool(worker, use)
        await asyncio.wait_for(worker.idle.wait(), 5) if worker.requests else None
    assert future.cancelled()
    assert [thread for thread in threading.enumerate() if thread.name == "rewardpool"] == []


async def test_a_sample_that_waits_for_a_proof_ends_with_its_pool() -> None:
    def use(pool: BlockingPool) -> list[Any]:
        futures = [pool.submit(Sample(text=text)) for text in ("long", "x")]
        asyncio.run_coroutine_threadsafe(both_came.wait(), loop).result(10)
        pool.close()
        return [future.done() for future in futures]

    both_came = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def comes_and_hangs(request: web.Request) -> web.StreamResponse:
        both_came.set()
        return await hangs(request)

    penalty = {"policy": {"penalty": -1}, "infra": "skip"}
    async with FakeWorker(refuses(TOO_LONG), comes_and_hangs) as worker:
        assert await with_pool(worker, use, concurrency=1, on_failure=penalty) == [True, True]


async def test_a_closed_pool_says_so() -> None:
    def use(pool: BlockingPool) -> None:
        pool.close()
        pool.score(Sample(text="four"))

    async with FakeWorker() as worker:
        with pytest.raises(RuntimeError, match="the pool is closed"):
            await with_pool(worker, use)


def test_a_pool_that_cannot_be_found_raises_where_it_is_made(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("REWARDPOOL_STATE_DIR", str(tmp_path))
    with pytest.raises(PoolNotFoundError, match="rl/skywork"):
        BlockingPool(RewardConfig(pool="rl/skywork"))


async def test_a_stream_shows_its_progress_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeWorker() as worker:
        outcomes = await with_pool(worker, lambda pool: list(pool.stream([Sample(text="four")] * 20, progress=True)))
    assert len(outcomes) == 20
    printed = capsys.readouterr()
    assert "20/20" in printed.err
    assert printed.out == ""
