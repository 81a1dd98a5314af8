"""Shared by the tests of one machine."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
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
