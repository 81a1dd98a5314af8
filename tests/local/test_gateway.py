"""The gateway of a teacher on one machine: real processes, and no worker, since the pool is at zero."""

from typing import Any

import aiohttp
import psutil
import pytest
from support.fleet import eventually
from support.local_machine import POOL, LocalMachine

from rewardpool_local.process import ENV_PROCESS

pytestmark = pytest.mark.real


def teacher(machine: LocalMachine, **fields: Any) -> dict[str, Any]:
    model = machine.home / "model"
    model.mkdir(exist_ok=True)
    return {
        "model": {"source": f"file://{model}", "type": "Teacher"},
        "engine": {"dtype": "float32"},
        "autoscaling": {"minReplicas": 0, "maxReplicas": 1, "policy": {"queueDepth": {"targetPerReplica": 8}}},
        **fields,
    }


async def asked(session: aiohttp.ClientSession, machine: LocalMachine, *, key: str | None) -> int | None:
    """The status of a question for the models; None while nobody listens."""
    gateway = machine.pool().status.gateway
    assert gateway is not None
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        async with session.get(f"{gateway.url}/v1/models", headers=headers) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return None


def gateways(machine: LocalMachine) -> list[psutil.Process]:
    return [one for one in machine.processes() if "/gateway/" in one.environ()[ENV_PROCESS]]


def settings(machine: LocalMachine) -> list[list[str]]:
    """What each one's command line has after the file of its key."""
    commands = [one.cmdline() for one in gateways(machine)]
    return [command[command.index("--key-file") + 2 :] for command in commands]


async def test_up_prints_the_gateways_url_and_it_takes_its_own_key_alone(
    machine: LocalMachine, session: aiohttp.ClientSession
) -> None:
    said = await machine.up(**teacher(machine, gateway={}))
    gateway = machine.pool().status.gateway
    assert gateway is not None
    assert f"{gateway.url}, its key in {machine.folder.gateway_key_file}" in said
    key = machine.folder.gateway_key_file.read_text()

    async def answers() -> bool:
        return await asked(session, machine, key=key) == 200

    await eventually(answers, what="the gateway answers", seconds=20)
    assert await asked(session, machine, key=None) == 401
    assert await asked(session, machine, key=machine.folder.key_file.read_text()) == 401
    gateways(machine)[0].kill()
    await eventually(answers, what="it answers again, at the same URL", seconds=30)
    assert (await machine.run("down", POOL))[0] == 0
    assert machine.processes() == []


async def test_a_running_pool_gets_a_gateway_with_other_settings_and_loses_it(machine: LocalMachine) -> None:
    await machine.up(**teacher(machine))
    vocabulary = "fedcba9876543210"
    wishes: list[dict[str, Any]] = [
        {"gateway": {}},
        {"gateway": {"requestTimeoutSeconds": 7}},
        {"gateway": {"requestTimeoutSeconds": 7, "vocabulary": vocabulary}},
        {},
    ]
    options = (["--timeout", "100"], ["--timeout", "7"], ["--vocabulary", vocabulary, "--timeout", "7"], None)
    for wanted, expected in zip(wishes, options, strict=True):
        assert (await machine.run("up", "-f", machine.manifest(**teacher(machine, **wanted))))[0] == 0

        async def is_so(expected: list[str] | None = expected) -> bool:
            there = machine.pool().status.gateway is not None
            return there == (expected is not None) and settings(machine) == ([] if expected is None else [expected])

        await eventually(is_so, what=f"the gateway's settings are {expected}", seconds=30)
