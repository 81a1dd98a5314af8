"""The event loop with virtual time: it waits for nothing, and does the same again."""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from time import monotonic

import pytest
from simulation.virtual_time import BEGIN, DeadlockError, LivelockError, VirtualTime

HERE = (__name__,)


def read_by(clock: Callable[[], float] = monotonic) -> float:
    return clock()


async def racing_tasks(history: list[tuple[float, int]]) -> None:
    async def one(number: int) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.1, 10))
            history.append((monotonic(), number))

    async with asyncio.TaskGroup() as group:
        tasks = {group.create_task(one(number)) for number in range(9)}
        await asyncio.sleep(1000)
        for task in tasks:
            task.cancel()
            history.append((monotonic(), hash(task)))


def history(seed: int) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    with VirtualTime(seed=seed, packages=HERE) as time:
        time.run(racing_tasks(found))
    return found


def test_a_day_of_waiting_takes_no_time() -> None:
    began = time.perf_counter()
    with VirtualTime(seed=1, packages=HERE) as virtual:
        virtual.run(asyncio.sleep(86400))
        assert virtual.monotonic() == pytest.approx(86400)
    assert time.perf_counter() - began < 10


def test_clocks_of_a_module_are_the_runs_own() -> None:
    with VirtualTime(seed=1, packages=HERE) as virtual:
        virtual.run(asyncio.sleep(60))
        assert (monotonic(), read_by()) == (virtual.monotonic(), virtual.monotonic())
        assert datetime.now(BEGIN.tzinfo) - BEGIN == timedelta(seconds=virtual.monotonic())
        assert isinstance(BEGIN, datetime)
    assert monotonic is time.monotonic


def test_one_seed_gives_one_run() -> None:
    assert history(3) == history(3)
    assert history(3) != history(4)


def test_a_deadline_in_virtual_time_passes() -> None:
    async def hangs() -> None:
        async with asyncio.timeout(30):
            await asyncio.Event().wait()

    with VirtualTime(seed=1, packages=HERE) as virtual, pytest.raises(TimeoutError):
        virtual.run(hangs())


def test_a_thread_is_a_call() -> None:
    with VirtualTime(seed=1, packages=HERE) as virtual:
        assert virtual.run(asyncio.to_thread(read_by)) == 0.0


def test_tasks_that_wait_for_good_are_an_error() -> None:
    with VirtualTime(seed=1, packages=HERE) as virtual, pytest.raises(DeadlockError):
        virtual.run(asyncio.Event().wait())


def test_tasks_without_a_pause_are_an_error() -> None:
    async def spins() -> None:
        for _ in count():
            await asyncio.sleep(0)

    with VirtualTime(seed=1, packages=HERE) as virtual, pytest.raises(LivelockError):
        virtual.run(spins())
