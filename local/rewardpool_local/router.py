"""The router of a pool on one machine: one process on one port for as long as the supervisor lives."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic

import aiohttp

from rewardpool_api import RewardPool, names
from rewardpool_control.snapshot import Router
from rewardpool_local.folder import PoolFolder
from rewardpool_local.supervised_process import Command, Run, SupervisedProcess
from rewardpool_operator.routers.admin import RouterAdmin, RouterError
from rewardpool_operator.routers.flags import router_flags
from rewardpool_operator.routers.programs import PROGRAMS
from rewardpool_runtime.listeners import HOST, HeldPort
from rewardpool_worker.mounted import ROUTER_LAUNCHER

log = logging.getLogger(__name__)

NAME = "router"
GRACE_SECONDS = 2.0 + max(program.settle_seconds for program in PROGRAMS.values())  # beyond the router's own deadline


class LocalRouter:
    """The router's process and its worker list."""

    def __init__(
        self, *, run: Run, folder: PoolFolder, session: aiohttp.ClientSession, python: str, port: int | None
    ) -> None:
        """Choose the port, which stays; nothing is started yet. Raises OSError: it is in use.

        Args:
            run: what the processes of the supervisor share.
            session: carries calls to the router.
            port: where to listen; None for a free one.
        """
        self._run = run
        self._folder = folder
        self._session = session
        self._python = python
        self._port_is_free_to_choose = port is None
        self._port, self._metrics_port = HeldPort(port or 0), HeldPort()
        self._admin: RouterAdmin | None = None
        self._flags: tuple[str, ...] = ()
        self._pool: RewardPool | None = None
        self._process = SupervisedProcess(NAME, run=run, command=self._command)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port.number}"

    async def ensure(self, pool: RewardPool) -> None:
        """Run it as the pool says; with other flags it is started anew once its requests are done."""
        self._pool = pool
        if self._process.running and self._flags != self._make_flags(pool):
            log.info("router: its settings changed, it starts anew")
            await self.stop()
            self._process = SupervisedProcess(NAME, run=self._run, command=self._command)
        await self._process.start_if_due()
        self._process.bound_log()

    async def observe(self) -> Router:
        if self._admin is None or not await self._process.listens():
            return Router(name=NAME, failure=self._process.failure)
        asked_at = monotonic()
        seen = replace(await self._admin.observe(NAME), age_seconds=monotonic() - asked_at)
        if seen.answering:
            self._port_is_free_to_choose = False
            self._process.note_serving()
            return seen
        return replace(seen, failure=seen.failure or self._process.failure)

    async def add(self, worker_url: str) -> None:
        """Put a worker on its list; when that fails, the next pass tries again."""
        if self._admin is not None and await self._process.listens():
            try:
                await self._admin.add(worker_url)
            except RouterError as error:
                log.warning("router: %s was not added: %s", worker_url, error)

    async def remove(self, worker_id: str) -> None:
        """Take a worker off its list; when that fails, the next pass tries again."""
        if self._admin is not None and await self._process.listens():
            try:
                await self._admin.remove(worker_id)
            except RouterError as error:
                log.warning("router: %s was not taken off: %s", worker_id, error)

    async def stop(self) -> None:
        """Take no new request, finish those in flight, end."""
        seconds = self._pool.spec.worker.drain_seconds if self._pool else 0
        await self._process.stop(grace_seconds=seconds + GRACE_SECONDS)

    async def kill(self) -> None:
        await self._process.kill()
        for port in (self._port, self._metrics_port):
            port.release()

    def _command(self) -> Command:
        if self._pool is None:
            raise RuntimeError("ensure() gives the pool before anything is started")
        if self._process.failure and self._process.failure.reason == "PortInUse":
            self._metrics_port = HeldPort()
            if self._port_is_free_to_choose:
                self._port = HeldPort()
        for port in (self._port, self._metrics_port):
            port.lend()
        self._flags = self._make_flags(self._pool)
        metrics_url = f"http://{HOST}:{self._metrics_port.number}"
        self._folder.write_metrics_url(metrics_url)
        admin_key = self._folder.admin_key_file.read_text().strip()
        self._admin = RouterAdmin(
            self._session,
            flavor=self._pool.spec.router.flavor,
            url=self.url,
            metrics_url=metrics_url,
            admin_key=admin_key,
            served_name=self._pool.served_name,
        )
        argv = (self._python, str(self._folder.files / ROUTER_LAUNCHER), *self._flags)
        return Command(
            argv=argv, env=self._environment(self._pool), url=self.url, ports=(self._port, self._metrics_port)
        )

    def _environment(self, pool: RewardPool) -> Mapping[str, str]:
        environment = {
            names.ENV_ROUTER_PACKAGE: PROGRAMS[pool.spec.router.flavor].package,
            names.ENV_ADMIN_KEY_FILE: str(self._folder.admin_key_file),
        }
        if pool.spec.router.auth.uses_key:
            environment[names.ENV_KEY_FILE] = str(self._folder.key_file)
        return environment

    def _make_flags(self, pool: RewardPool) -> tuple[str, ...]:
        return router_flags(
            flavor=pool.spec.router.flavor,
            host=HOST,
            port=self._port.number,
            metrics_host=HOST,
            metrics_port=self._metrics_port.number,
            request_timeout_seconds=pool.spec.router.request_timeout_seconds,
            shutdown_grace_seconds=pool.spec.worker.drain_seconds,
        )
