"""Shared by the tests of one machine."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from support.fleet import FUNCTION, ROOT, Program
from support.local_machine import LocalMachine


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LocalMachine]:
    machine = LocalMachine(tmp_path)
    left: list[str] = []
    try:
        yield machine
    finally:
        left = machine.clean_up()
    assert left == [], "the pools left processes behind"


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Program]:
    """A function server, which takes as long for a score as the sample says."""
    argv = [sys.executable, "-m", "rewardpool_worker.function_server", "--function", FUNCTION]
    program = Program(
        lambda port: [*argv, "--port", str(port)],
        env={"PYTHONPATH": str(ROOT / "tests")},
        log=tmp_path / "worker.log",
    )
    await program.start()
    yield program
    program.kill()
