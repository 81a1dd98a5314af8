"""A sample that has its outcome is gone with it, and leaves no cycle: a collection stops the whole trainer."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest
from support.fake_worker import Behaviour, FakeWorker, hangs, refuses, says
from support.pauses import no_pause
from support.quick_hedging import quick

from rewardpool import BlockingPool, Pool, RewardConfig, Sample
from rewardpool._client import request_timer
from rewardpool._client.pool import injected_pool
from rewardpool._client.request import ScoreRequest
from rewardpool._client.threads.loop_thread import Work
from rewardpool_api.contract import CallerError

COUNT = 16
UNAVAILABLE = says("nobody is there", status=503)
INVALID = says("not json")
TOO_LONG = refuses(CallerError(code="sample_too_long", message="long", length_tokens=2000, limit_tokens=1024))

IsLeft = Callable[[], bool]


@pytest.fixture
def something_is_left() -> Iterator[IsLeft]:
    """Whether there are samples, requests for them or futures of them that were not there before the test.

    Nothing is collected meanwhile, so that what only a collection would free is still there.
    """
    gc.collect()
    gc.disable()
    before = _followed()  # kept until the end, so that no new object has the id of one of these
    known = {id(one) for one in before}
    yield lambda: any(id(one) not in known for one in _followed())
    gc.enable()


def _followed() -> list[Any]:
    return [one for one in gc.get_objects() if isinstance(one, Sample | ScoreRequest | Work)]


def samples() -> Iterator[Sample]:
    return (Sample(text="x") for _ in range(COUNT))


async def one_by_one(pool: Pool) -> None:
    await asyncio.gather(*(pool.outcome(sample) for sample in samples()))


async def as_a_stream(pool: Pool) -> None:
    async with aclosing(pool.stream(samples())) as outcomes:
        async for _ in outcomes:
            pass


@pytest.mark.parametrize(
    ("behaviours", "settings"),
    [
        pytest.param([], {}, id="alone"),
        pytest.param([], {"batch": 8, "concurrency": 2}, id="together"),
        pytest.param([UNAVAILABLE] * 5, {}, id="tried again"),
        pytest.param([INVALID] * 5, {}, id="two at a time"),
        pytest.param([TOO_LONG] * 5, {}, id="refused"),
    ],
)
@pytest.mark.parametrize("ask", [one_by_one, as_a_stream])
async def test_nothing_is_left_of_samples_that_were_asked_for_on_an_event_loop(
    ask: Callable[[Pool], Coroutine[Any, Any, None]],
    behaviours: list[Behaviour],
    settings: dict[str, Any],
    something_is_left: IsLeft,
) -> None:
    async with FakeWorker(*behaviours) as worker:
        config = RewardConfig(url=worker.url, on_failure="skip", **settings)
        async with injected_pool(config, call_later=no_pause) as pool:
            await ask(pool)
            assert await goes_away(something_is_left)


async def test_nothing_is_left_of_samples_that_were_overtaken(
    something_is_left: IsLeft, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_timer, "LEFT_OPEN_SECONDS", 0.01)
    async with (
        FakeWorker(*[hangs] * 2) as worker,
        injected_pool(RewardConfig(url=worker.url), hedging=partial(quick, None)) as pool,
    ):
        await one_by_one(pool)
        assert pool.report().hedges_won >= 2
        assert await goes_away(something_is_left)


def submitted(pool: BlockingPool) -> None:
    for future in [pool.submit(sample) for sample in samples()]:
        future.result()


def streamed(pool: BlockingPool) -> None:
    for _ in pool.stream(samples()):
        pass


def scored(pool: BlockingPool) -> None:
    for sample in samples():
        pool.score(sample)


@pytest.mark.parametrize("ask", [submitted, streamed, scored])
async def test_nothing_is_left_of_samples_that_another_thread_handed_over(
    ask: Callable[[BlockingPool], None], something_is_left: IsLeft
) -> None:
    async with FakeWorker() as worker:
        pool = await asyncio.to_thread(BlockingPool, RewardConfig(url=worker.url))
        try:
            await asyncio.to_thread(ask, pool)
            assert await goes_away(something_is_left)
        finally:
            await asyncio.to_thread(pool.close)


async def goes_away(something_is_left: IsLeft) -> bool:
    """Within a while: the last one's loop may be about to leave what settled it, and what lost a race to be closed."""
    for _ in range(50):
        if not something_is_left():
            return True
        await asyncio.sleep(0.02)
    return False
