"""Another user of the machine takes ports: it gets no key and no sample, and gives no score."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.fleet import eventually
from support.local_machine import local_machine
from support.neighbour import needs_two_users, neighbour, noted
from support.ports import free_port
from support.posts import post

from rewardpool._client.connections.connect import UnreachableError
from rewardpool._client.connections.http import HttpClient
from rewardpool._client.connections.target import target

pytestmark = [pytest.mark.real, needs_two_users]
SLOW = {"env": [{"name": "START_SECONDS", "value": "0.5"}]}
"""An engine whose port is named in its arguments for a while before it listens there."""


async def test_a_worker_has_its_port_before_another_user_can(tmp_path: Path) -> None:
    name = f"attacked-{os.getpid()}"
    with local_machine(tmp_path, pool=f"rl/{name}") as machine, neighbour(f"--served-name {name}", tmp_path / "noted"):
        await machine.up(engine=SLOW)
        assert await machine.run("score", "hello", "--pool", f"rl/{name}") == (0, "5.0\n")
        machine.worker().kill()

        async def restarted() -> bool:
            return machine.pool().status.workers[0].restarts == 1

        await eventually(restarted, what="the worker has a new process")
        await machine.serves(1)
        assert await machine.run("score", "hello", "--pool", f"rl/{name}") == (0, "5.0\n")
    assert noted(tmp_path / "noted") == []


async def test_another_user_who_takes_the_routers_port_is_sent_nothing(tmp_path: Path) -> None:
    with local_machine(tmp_path) as machine, neighbour(str(tmp_path), tmp_path / "noted"):
        machine.start("up", "-f", machine.manifest(), "--detach")

        async def is_found_out() -> bool:
            pool = machine.folder.read_pool()
            degraded = pool.status.condition("Degraded") if pool else None
            return degraded is not None and "another process, of user 65534" in degraded.message

        await eventually(is_found_out, what="the status says who has the router's port", seconds=60)
    won = noted(tmp_path / "noted")
    assert won
    assert all("won" in one for one in won), won


async def test_a_client_sends_nothing_to_another_user_at_its_pools_address(tmp_path: Path) -> None:
    port, file, client = free_port(), tmp_path / "noted", HttpClient()
    names_it = [sys.executable, "-c", "import sys; sys.stdin.read()", str(file), "--port", str(port), "-"]
    with neighbour(str(file), file), _started(names_it) as process:

        async def won() -> bool:
            return noted(file) == [{"won": port}]

        await eventually(won, what="the neighbour has the port")
        to = target(f"http://127.0.0.1:{port}/v1/embeddings", key="secret", tls=None, is_own=True)
        with pytest.raises(UnreachableError, match="listens a process of user 65534"):
            await post(client, to, b"", b"{}")
        process.communicate()
    await client.close()
    assert noted(file) == [{"won": port}]


def _started(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(arguments, stdin=subprocess.PIPE)
