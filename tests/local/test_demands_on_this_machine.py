"""A training job on this machine announces its bursts by a file, and dies: a real pool, and a stand-in for the job."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.fleet import eventually
from support.local_machine import POOL, LocalMachine

pytestmark = pytest.mark.real

SCALING = {
    "minReplicas": 0,
    "maxReplicas": 2,
    "cooldownSeconds": 2,
    "policy": {"type": "Demand", "demand": {"drainSeconds": 5, "learn": False}},
    "serviceRate": {"initialPerReplica": 10},
    "scaleDown": {"stabilizationWindowSeconds": 1},
}
LEASE_SECONDS = 3


def announce(machine: LocalMachine, job: str, text: str) -> None:
    folder = machine.folder.demands
    unfinished = folder / f".{job}.json.part"
    unfinished.write_text(text)
    unfinished.replace(folder / f"{job}.json")


@asynccontextmanager
async def stand_in_job(machine: LocalMachine, *, begins_in_seconds: float, **demand: Any) -> AsyncIterator[None]:
    """Announces the demand again and again, the burst nearer each time; at the end it dies without a word."""
    begins = time.monotonic() + begins_in_seconds

    async def keep_announcing() -> None:
        while True:
            # A burst that stayed as far ahead would be let go for good by a pool whose start takes less than that.
            ahead = max(0.0, begins - time.monotonic())
            said = {"job": "grpo", "startsInSeconds": ahead, **demand}
            announce(machine, "grpo", json.dumps({"leaseSeconds": LEASE_SECONDS, "demand": said}))
            await asyncio.sleep(LEASE_SECONDS / 3)

    task = asyncio.create_task(keep_announcing())
    yield
    task.cancel()


def states(machine: LocalMachine) -> dict[str, str]:
    return {demand.job: demand.state for demand in machine.pool().status.demands}


async def test_the_pool_is_warm_for_a_job_that_lives_and_lets_go_when_it_dies(machine: LocalMachine) -> None:
    await machine.up(autoscaling=SCALING)
    await machine.serves(0)
    announce(machine, "broken", "{")
    async with stand_in_job(machine, begins_in_seconds=5, phase="Update", samples=100):
        await machine.serves(2)
        assert states(machine) == {"grpo": "Live", "broken.json": "Ignored"}
        _, shown = await machine.run("status", POOL)
        (line,) = [line for line in shown.splitlines() if line.startswith("grpo")]
        assert line.split()[:4] == ["grpo", "Live", "Update", "100"]
    await machine.serves(0)

    async def lapsed() -> bool:
        return states(machine)["grpo"] == "Lapsed"

    await eventually(lapsed, what="the demand has lapsed")
    announce(machine, "grpo", json.dumps({"demand": {"job": "grpo", "phase": "Ended"}}))

    async def gone() -> bool:
        return not (machine.folder.demands / "grpo.json").exists()

    await eventually(gone, what="the file of a job that ended is removed")
    told = (machine.folder.logs / "supervisor.log").read_text()
    counts = [told.count(reason) for reason in ("DemandBegan", "DemandLapsed", "DemandIgnored: broken.json")]
    assert counts == [1, 1, 1]
