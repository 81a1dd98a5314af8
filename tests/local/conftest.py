"""Shared by the tests of one machine."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from support.fleet import FUNCTION, ROOT, SERVED_NAME, Program
from support.local_machine import lasting, machine

__all__ = ["lasting", "machine"]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Program]:
    """A function server, which takes as long for a score as the sample says."""
    argv = [sys.executable, "-m", "rewardpool_worker.function_server", "--function", FUNCTION]
    argv += ["--served-name", SERVED_NAME]
    program = Program(
        lambda port: [*argv, "--port", str(port)],
        env={"PYTHONPATH": str(ROOT / "tests")},
        log=tmp_path / "worker.log",
    )
    await program.start()
    yield program
    program.kill()
