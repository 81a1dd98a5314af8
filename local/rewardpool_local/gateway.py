"""The gateway of a teacher on one machine: one process on one port for as long as the supervisor lives."""

import asyncio
import sys

import aiohttp

from rewardpool_api import RewardPool, names
from rewardpool_control.snapshot import Gateway
from rewardpool_local.folder import PoolFolder
from rewardpool_local.supervised_process import Command, Run, SupervisedProcess
from rewardpool_runtime.listeners import HOST, HeldPort

NAME = "gateway"
GRACE_SECONDS = names.GATEWAY_GRACE_SECONDS + 5.0  # longer than the gateway takes for what is in flight
HEALTH_TIMEOUT = aiohttp.ClientTimeout(total=2.0)


class LocalGateway:
    """The gateway's process, where the pool wants one."""

    def __init__(self, *, run: Run, folder: PoolFolder, session: aiohttp.ClientSession, router_url: str) -> None:
        """Remember what it is in front of; nothing is started yet."""
        self._run = run
        self._folder = folder
        self._session = session
        self._router_url = router_url
        self._port: HeldPort | None = None
        self._process = SupervisedProcess(NAME, run=run, command=self._command)
        self._pool: RewardPool | None = None
        self._timeout = names.GATEWAY_TIMEOUT_SECONDS
        self._vocabulary: str | None = None
        self._ending: asyncio.Task[None] | None = None

    async def ensure(self, pool: RewardPool) -> Gateway | None:
        """Start or stop it as the pool says; return it for a snapshot."""
        self._pool = pool
        wanted = pool.spec.gateway
        running = self._timeout, self._vocabulary
        is_wanted = wanted is not None and (wanted.request_timeout_seconds, wanted.vocabulary) == running
        if self._process.running and not self._process.stopping and not is_wanted:
            # Beside the passes, which workers need meanwhile.
            self._ending = asyncio.create_task(self.stop())
        if wanted is None:
            return None
        if self._process.stopping and not self._process.running:
            self._process = SupervisedProcess(NAME, run=self._run, command=self._command)
        self._port = self._port or HeldPort()
        await self._process.start_if_due()
        self._process.bound_log()
        answers = await self._answers()
        if answers:
            self._process.note_serving()
        return Gateway(
            url=self._url(self._port),
            ready=int(answers),
            key_file=str(self._folder.gateway_key_file),
            failure=self._process.failure,
        )

    async def stop(self) -> None:
        """Take no new request, finish those in flight, end."""
        if self._process.running:
            await self._process.stop(grace_seconds=self._timeout + GRACE_SECONDS)

    async def kill(self) -> None:
        await self._process.kill()
        if self._port is not None:
            self._port.release()

    async def _answers(self) -> bool:
        if not await self._process.listens():
            return False
        try:
            async with self._session.get(f"{self._process.url}/health", timeout=HEALTH_TIMEOUT) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _command(self) -> Command:
        if self._pool is None or self._pool.spec.gateway is None or self._port is None:
            raise RuntimeError("ensure() gives pool and port before anything is started")
        if self._process.failure and self._process.failure.reason == "PortInUse":
            self._port = HeldPort()
        self._port.lend()
        environment = {names.ENV_URL: self._router_url}
        if self._pool.spec.router.auth.uses_key:
            environment[names.ENV_KEY_FILE] = str(self._folder.key_file)
        wanted = self._pool.spec.gateway
        self._timeout, self._vocabulary = wanted.request_timeout_seconds, wanted.vocabulary
        options = ["--listen", f"{HOST}:{self._port.number}", "--key-file", str(self._folder.gateway_key_file)]
        if self._vocabulary is not None:
            options += ["--vocabulary", self._vocabulary]
        options += ["--timeout", str(self._timeout)]
        argv = (sys.executable, "-m", "rewardpool_cli", "gateway", self._pool.key, "--teacher", *options)
        return Command(argv=argv, env=environment, url=self._url(self._port), ports=(self._port,))

    @staticmethod
    def _url(port: HeldPort) -> str:
        return f"http://{HOST}:{port.number}"
