"""A training loop and a pool on one GPU: FakePool notes who has it, and the clock is simulated."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.simulated_time import run

from rewardpool.errors import ConfigError, PoolNotReadyError
from rewardpool_train.colocated import Costs, SharedGpu

COSTS = Costs(wake_seconds=2, sleep_seconds=1, samples_per_second=10, patience_seconds=0.1)


class FakePool:
    """Takes its time to wake and sleep, and knows whether the trainer computes meanwhile."""

    def __init__(self, *, fails: str = "") -> None:
        self.on_gpu = False
        self.training = False
        self.scored: list[int] = []
        self._fails = fails

    @asynccontextmanager
    async def awake(self) -> AsyncGenerator[None, None]:
        self.on_gpu = True
        assert not self.training
        await asyncio.sleep(2)
        if self._fails == "wake":
            raise PoolNotReadyError("it does not wake")
        yield
        await asyncio.sleep(1)
        if self._fails == "sleep":
            raise PoolNotReadyError("it does not sleep")
        self.on_gpu = False

    async def score(self, gpu: SharedGpu, number: int, seconds: float = 1.0) -> None:
        async with gpu.scoring():
            assert self.on_gpu
            assert not self.training
            await asyncio.sleep(seconds)
            self.scored.append(number)

    async def train(self, gpu: SharedGpu, seconds: float) -> None:
        async with gpu.training():
            assert not self.on_gpu
            self.training = True
            await asyncio.sleep(seconds)
            assert not self.on_gpu
            self.training = False


def played(pool: FakePool, story: Callable[[SharedGpu], Awaitable[None]], costs: Costs = COSTS) -> tuple[Any, float]:
    """Play a story on a simulated clock; returns the report, and the seconds it took."""

    async def play() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        async with SharedGpu(pool.awake, costs, clock=loop.time) as gpu:
            await story(gpu)
        return gpu.report(), loop.time()

    return run(play())


def test_samples_of_a_rollout_are_scored_in_one_turn_after_it() -> None:
    pool = FakePool()

    async def step(gpu: SharedGpu) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pool.train(gpu, 10))
            await asyncio.sleep(1)
            for number in range(20):
                group.create_task(pool.score(gpu, number))
        await pool.train(gpu, 5)

    report, seconds = played(pool, step)
    assert (report.turns, report.scored) == (1, 20)
    # Rollout, patience, wake, scores side by side, sleep, update.
    assert seconds == pytest.approx(10 + 0.1 + 2 + 1 + 1 + 5, abs=0.2)


def test_an_update_that_can_begin_does_not_wait_for_samples_of_others() -> None:
    pool = FakePool()

    async def step(gpu: SharedGpu) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pool.train(gpu, 10))
            await asyncio.sleep(1)
            group.create_task(pool.score(gpu, 0))
            group.create_task(pool.train(gpu, 5))

    report, seconds = played(pool, step)
    assert report.turns == 1
    assert seconds == pytest.approx(10 + 5 + 0.1 + 2 + 1 + 1, abs=0.2)


def test_a_moment_without_the_trainer_wakes_nobody() -> None:
    pool = FakePool()

    async def step(gpu: SharedGpu) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(pool.score(gpu, 0))
            for _ in range(5):
                await pool.train(gpu, 1)
                await asyncio.sleep(0.05)
                assert not waiting.done()

    report, _ = played(pool, step)
    assert report.turns == 1


def test_a_pool_that_does_not_wake_is_an_error_and_no_silence() -> None:
    pool = FakePool(fails="wake")

    async def step(gpu: SharedGpu) -> None:
        with pytest.raises(PoolNotReadyError, match="does not wake"):
            await pool.score(gpu, 0)

    played(pool, step)


def test_the_trainer_does_not_get_a_gpu_that_the_pool_did_not_free_memory() -> None:
    pool = FakePool(fails="sleep")

    async def step(gpu: SharedGpu) -> None:
        await pool.score(gpu, 0)
        for _ in range(2):
            with pytest.raises(PoolNotReadyError, match="does not sleep"):
                await pool.train(gpu, 1)

    played(pool, step)


def test_a_cancelled_sample_keeps_nobody_waiting() -> None:
    pool = FakePool()

    async def step(gpu: SharedGpu) -> None:
        for delay in (0.05, 1.0, 2.11, 2.5):
            doomed = asyncio.create_task(pool.score(gpu, 0, seconds=100))
            await asyncio.sleep(delay)
            doomed.cancel()
            await asyncio.gather(doomed, return_exceptions=True)
            await pool.train(gpu, 1)

    played(pool, step)


def test_several_ranks_that_do_not_know_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="needs peers"):
        SharedGpu(FakePool().awake)


@settings(deadline=None)
@given(
    operations=st.lists(st.tuples(st.floats(0.01, 20), st.floats(0, 3)), min_size=1, max_size=6),
    arrivals=st.lists(st.tuples(st.floats(0, 60), st.floats(0, 5)), max_size=12),
    longest_wait_seconds=st.sampled_from([None, 5.0]),
)
def test_every_sample_is_scored_and_the_gpu_never_has_two_users(
    operations: list[tuple[float, float]], arrivals: list[tuple[float, float]], longest_wait_seconds: float | None
) -> None:
    pool = FakePool()

    async def late(gpu: SharedGpu, number: int, delay: float, seconds: float) -> None:
        await asyncio.sleep(delay)
        await pool.score(gpu, number, seconds)

    async def job(gpu: SharedGpu) -> None:
        async with asyncio.TaskGroup() as group:
            for number, (delay, seconds) in enumerate(arrivals):
                group.create_task(late(gpu, number, delay, seconds))
            for seconds, pause in operations:
                await pool.train(gpu, seconds)
                await asyncio.sleep(pause)

    costs = Costs(
        wake_seconds=2,
        sleep_seconds=1,
        samples_per_second=10,
        patience_seconds=0.1,
        longest_wait_seconds=longest_wait_seconds,
    )
    played(pool, job, costs)
    assert sorted(pool.scored) == list(range(len(arrivals)))
