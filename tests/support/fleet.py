"""A real router with real function servers behind it, for tests of what happens when some of them die.

Both are started as pools start them: the router's flags, keys in files, one to score and one for the worker list.
Everything listens on free ports of 127.0.0.1 and is killed, by process id, when the fleet is left.
"""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, get_args

import aiohttp
import pytest
from support.patience import PATIENCE
from support.ports import free_port
from support.reward_functions import ENV_RECORD

from rewardpool_api.names import (
    ENV_ADMIN_KEY_FILE,
    ENV_KEY_FILE,
    ENV_REVISION,
    ENV_ROUTER_PACKAGE,
    ENV_SERVER_PYTHON,
    STATE_FILE,
)
from rewardpool_api.pool import RouterFlavor
from rewardpool_control.snapshot import RegisteredWorker
from rewardpool_operator.routers.admin import RouterAdmin
from rewardpool_operator.routers.flags import TlsFiles, router_flags
from rewardpool_operator.routers.programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
ROUTER_LAUNCHER = ROOT / "workers" / "rewardpool_worker" / "router_launcher.py"
FUNCTION = "support.reward_functions:compute_score"
SERVED_NAME = "fleet"
"""The `model` of requests to a fleet, where the test names no other; sglang-router takes any."""
REVISION = "f1ee7000"
"""Of a fleet's function servers."""
FLAVORS: tuple[RouterFlavor, ...] = get_args(RouterFlavor)
START_SECONDS = 10.0
"""For a process to listen."""


def server_python() -> str:
    """The interpreter that has the routers; skips the test, saying so, where there is none."""
    python = os.environ.get(ENV_SERVER_PYTHON) or str(ROOT / ".rewardpool/venvs/server/bin/python")
    if not Path(python).exists():
        pytest.skip(f"needs sglang-router and smg: run `make setup-server` (no {python})")
    return python


class Program:
    """One process on a port of its own, which may be killed and started again on the same port."""

    def __init__(
        self, command: Callable[[int], list[str]], *, env: Mapping[str, str], log: Path, host: str = "127.0.0.1"
    ) -> None:
        self._command = command
        self._env = {**os.environ, **env}
        self._log = log
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None
        self.move()

    def move(self, port: int | None = None) -> None:
        """Take another port, this one or a free one, from the next start on."""
        self.port = port or free_port()
        self.url = f"http://{self._host}:{self.port}"

    async def start(self, *, seconds: float = START_SECONDS) -> None:
        """Start it and wait until it answers /health, so long at the most."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork takes milliseconds
                self._command(self.port), env=self._env, stdout=log, stderr=log, start_new_session=True
            )
        await eventually(self._is_healthy, what=f"{self.url} answers, see {self._log}", seconds=seconds)

    async def _is_healthy(self) -> bool:
        # Another program at its port may answer in its place.
        if (ended := self._process and self._process.poll()) is not None:
            pytest.fail(f"the program for {self.url} ended with {ended}, see {self._log}")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            try:
                async with session.get(self.url + "/health") as answer:
                    return answer.status == 200
            except (aiohttp.ClientError, TimeoutError):
                return False

    @property
    def pid(self) -> int:
        """Of the process, which runs."""
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it with -9, if it runs, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class Fleet:
    """A router and its workers; an async context manager.

    Args:
        folder: For keys and logs.
        workers: How many function servers to start.
        others: URLs of workers that run already, whose key is `key`.
        key: The key that scoring needs; by default a new one.
        flavor: Which router.
        function: What the workers score with.
        served_name: The `model` of requests; smg knows no other, and answers 404 `model_not_found` to one.
        request_seconds: How long the router waits for an answer.
        host: The loopback address at which the router listens.
        revisions: Of each function server; by default all are of `REVISION`.

    Attributes:
        key_file: Has that key in it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int,
        others: Sequence[str] = (),
        key: str | None = None,
        flavor: RouterFlavor = "sglang-router",
        function: str = FUNCTION,
        served_name: str = SERVED_NAME,
        request_seconds: int = 60,
        host: str = "127.0.0.1",
        revisions: Sequence[str] | None = None,
    ) -> None:
        python = server_python()
        # Not in the test's folder: what a function writes there would be on its way to the key.
        keys_folder = folder.with_name(f"{folder.name}-keys")
        keys_folder.mkdir(exist_ok=True)
        self.key_file = keys_folder / "key"
        self._admin_key_file = keys_folder / "admin-key"
        self._others = others
        self._served_name = served_name
        self.renew_key(key)
        self._admin_key_file.write_text(secrets.token_urlsafe())

        def router(port: int) -> list[str]:
            flags = loopback_flags(flavor, port, metrics_port=free_port(), request_seconds=request_seconds, host=host)
            return [python, str(ROUTER_LAUNCHER), *flags]

        def worker(port: int) -> list[str]:
            # Many calls at once: these tests are about workers that die, not about workers that are full.
            program = [sys.executable, "-m", "rewardpool_worker.function_server", "--function", function]
            program += ["--served-name", served_name]
            return [*program, "--port", str(port), "--concurrency", "256", "--env", ENV_RECORD]

        self._flavor = flavor
        keys = {ENV_KEY_FILE: str(self.key_file), ENV_ADMIN_KEY_FILE: str(self._admin_key_file)}
        path = {"PYTHONPATH": str(ROOT / "tests")}
        self.router = Program(
            router, env={**keys, ENV_ROUTER_PACKAGE: PROGRAMS[flavor].package}, log=folder / "router.log", host=host
        )
        self.workers = [
            Program(worker, env={**keys, **path, ENV_REVISION: revision}, log=folder / f"worker-{index}.log")
            for index, revision in enumerate(revisions or [REVISION] * workers)
        ]

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(program.start() for program in [self.router, *self.workers]))
            await self.join()
        except BaseException:
            self._kill_all()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._kill_all()

    def _kill_all(self) -> None:
        for program in [self.router, *self.workers]:
            program.kill()

    def renew_key(self, key: str | None = None) -> None:
        """Change the key for scoring; its workers take it at once, the router from its next start on."""
        self.key_file.write_text(key or secrets.token_urlsafe())

    def write_state(self, folder: Path, *, namespace: str = "rl", name: str = "fleet") -> None:
        """Write the state file that a pool on this machine would have, below the state directory `folder`."""
        place = folder / namespace / name
        place.mkdir(parents=True, exist_ok=True)
        serving = {"type": "Serving", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        state = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"model": {"source": "python://rewards:score"}},
            "status": {
                "url": self.router.url,
                "replicas": len(self.workers) + len(self._others),
                "model": {"type": "Function", "servedName": self._served_name},
                "auth": {"keyFile": str(self.key_file)},
                "conditions": [serving],
            },
        }
        fresh = place / "fresh.json"
        fresh.write_text(json.dumps(state))
        fresh.replace(place / STATE_FILE)

    async def join(self) -> None:
        """Add every worker to the router, and wait until the router uses them all."""
        urls = {*(worker.url for worker in self.workers), *self._others}
        async with aiohttp.ClientSession() as session:
            admin = self._admin(session)
            for url in urls:
                await admin.add(url)

            async def all_listed() -> bool:
                return {worker.url for worker in await admin.workers()} == urls

            await eventually(all_listed, what="the router lists all workers")

    async def listed(self) -> Sequence[RegisteredWorker]:
        """The router's list, with what it counts at each worker."""
        async with aiohttp.ClientSession() as session:
            return await self._admin(session).workers()

    def _admin(self, session: aiohttp.ClientSession) -> RouterAdmin:
        return RouterAdmin(
            session,
            flavor=self._flavor,
            url=self.router.url,
            metrics_url=self.router.url,
            admin_key=self._admin_key_file.read_text(),
            served_name=self._served_name,
        )


def loopback_flags(
    flavor: RouterFlavor,
    port: int,
    *,
    metrics_port: int,
    tls: TlsFiles | None = None,
    grace_seconds: int = 5,
    request_seconds: int = 60,
    host: str = "127.0.0.1",
) -> tuple[str, ...]:
    """The flags of a router on this machine."""
    return router_flags(
        flavor=flavor,
        host=host,
        port=port,
        metrics_host="127.0.0.1",
        metrics_port=metrics_port,
        request_timeout_seconds=request_seconds,
        shutdown_grace_seconds=grace_seconds,
        tls=tls,
    )


async def eventually(holds: Callable[[], Awaitable[bool]], *, what: str, seconds: float = START_SECONDS) -> None:
    """Wait until the condition holds; fails the test when that takes longer than PATIENCE allows."""
    limit = seconds * PATIENCE
    deadline = time.monotonic() + limit
    while not await holds():
        if time.monotonic() > deadline:
            pytest.fail(f"after {limit:g} s it is not so that {what}")
        await asyncio.sleep(0.05)
