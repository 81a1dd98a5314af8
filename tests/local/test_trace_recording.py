"""A trace of a real pool on this machine, from its load to what is simulated with it."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from support.local_machine import POOL, LocalMachine

pytestmark = [pytest.mark.real, pytest.mark.long]  # tests/simulator records by the same code

REQUESTS = 40


async def test_a_running_pool_s_load_is_recorded_and_can_be_simulated(machine: LocalMachine, tmp_path: Path) -> None:
    await machine.up()
    trace = tmp_path / "mine.yaml"
    recording = asyncio.create_task(machine.run("trace", "record", POOL, "--seconds", "15", "-o", str(trace)))
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(score(session, machine) for _ in range(REQUESTS)))
    code, said = await recording
    assert (code, f"about {REQUESTS} requests" in said) == (0, True), said
    code, figures = await machine.run("simulate", "--trace", str(trace), "--policy", "queue-depth", "--json")
    figures = figures[figures.index("{") :]  # progress comes before it
    assert json.loads(figures)["traces"]["mine"]["queue-depth"]["finished"] is True


async def score(session: aiohttp.ClientSession, machine: LocalMachine) -> None:
    """A score that takes six seconds, so that several looks see it."""
    sample = {"data_source": "", "solution_str": "four", "ground_truth": "", "extra_info": {"seconds": 6}}
    headers = {"Authorization": f"Bearer {machine.folder.key_file.read_text()}"}
    body = {"model": "length", "input": json.dumps(sample)}
    async with session.post(f"{machine.pool().status.url}/v1/embeddings", json=body, headers=headers) as answer:
        assert answer.status == 200
