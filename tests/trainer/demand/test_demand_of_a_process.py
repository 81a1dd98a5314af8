"""Training jobs as processes of their own: one that is busy announces on, and one that is killed does not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.local_pool import POOL, announced, demand_file, environ_of, write_local_pool

from cluster.processes import wait_until
from rewardpool._demand.announcer import WRITE_SECONDS

SECONDS = 60.0
"""Deadline of what should happen within two seconds."""

BLOCKING = """
import ctypes
from rewardpool import BlockingPool, RewardConfig
with BlockingPool(RewardConfig()) as pool, pool.demand() as demand:
    demand.rollout()
    {busy}
"""
ASYNC = """
import asyncio, time
from rewardpool import Pool, RewardConfig
async def train():
    async with Pool(RewardConfig()) as pool:
        pool.demand().rollout()
        {busy}
asyncio.run(train())
"""
RESTLESS = """
import time
from rewardpool import BlockingPool, RewardConfig
with BlockingPool(RewardConfig()) as pool, pool.demand() as demand:
    while True:
        demand.rollout()
        time.sleep(0.05)
        demand.update()
        time.sleep(0.05)
"""


@contextmanager
def job(state_dir: Path, code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs the code against the pool of this folder."""
    environ = {**os.environ, **environ_of(state_dir), "REWARDPOOL_POOL": POOL}
    with subprocess.Popen([sys.executable, "-c", code], env=environ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(check: Callable[[], bool]) -> None:
    wait_until(check, what="the demand says so", deadline_seconds=SECONDS)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(BLOCKING.format(busy="while True: pass"), id="python code that never rests"),
        pytest.param(
            # PyDLL, unlike CDLL, keeps the GIL during a call.
            BLOCKING.format(busy="while True: ctypes.PyDLL(None).usleep(500_000)"),
            id="an extension that keeps the GIL for half a second at a time",
        ),
        pytest.param(ASYNC.format(busy="time.sleep(600)"), id="an event loop that is blocked"),
    ],
)
def test_a_job_that_is_busy_is_announced_all_the_same(tmp_path: Path, code: str) -> None:
    folder = write_local_pool(tmp_path)
    with job(tmp_path, code):
        until(lambda: (demand := announced(folder)) is not None and demand.phase == "Rollout")


def test_a_job_that_is_killed_renews_nothing_any_more(tmp_path: Path) -> None:
    file = demand_file(write_local_pool(tmp_path))
    with job(tmp_path, RESTLESS) as process:
        until(file.exists)
        first = file.stat().st_mtime_ns
        until(lambda: file.stat().st_mtime_ns != first)
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
        last = file.stat().st_mtime_ns
        time.sleep(4 * WRITE_SECONDS)
        assert file.stat().st_mtime_ns == last
