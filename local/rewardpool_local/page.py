"""The page in the browser for the pools of this machine: their state folders are read, and their routers' metrics.

It is a process of its own, on loopback alone. A pool never waits for it, and it shows pools whose supervisor is gone.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import aiohttp
from aiohttp import web
from yarl import URL

from rewardpool_api import RewardPool, dump_manifest
from rewardpool_local.folder import PoolFolder, StateUnreadableError, all_folders, folder_of
from rewardpool_local.page_folder import PageFolder
from rewardpool_local.process import tail
from rewardpool_operator.routers.admin import MAX_METRICS_BYTES
from rewardpool_operator.routers.metrics import counts
from rewardpool_page.access import TokenFile, Viewer
from rewardpool_page.log_text import shown
from rewardpool_page.server import page_app
from rewardpool_page.source import MAX_LOG_BYTES, Counts, NotShownError, PageWorker, Seen
from rewardpool_runtime.bounded import read_text
from rewardpool_runtime.http_server import Runner
from rewardpool_runtime.listeners import HOST, check_listener

log = logging.getLogger(__name__)

PORT: Final = 8686
METRICS_TIMEOUT: Final = aiohttp.ClientTimeout(total=1.0)
SHUTDOWN_SECONDS: Final = 2.0


class MachineSource:
    """The pools of this machine."""

    where = "on this machine"
    starts_by = "rewardpool up -f pool.yaml"

    def __init__(self, environ: Mapping[str, str], session: aiohttp.ClientSession) -> None:
        self._environ = environ
        self._session = session

    @classmethod
    @asynccontextmanager
    async def open(cls, environ: Mapping[str, str]) -> AsyncIterator[Self]:
        async with aiohttp.ClientSession(timeout=METRICS_TIMEOUT) as session:
            yield cls(environ, session)

    async def observe(self, *, counted: bool) -> Sequence[Seen]:
        """Return all pools as they are now; with the counts of their routers, while the page is open.

        Raises:
            OSError: their folders cannot be read.
        """
        found = await asyncio.to_thread(lambda: [(one, _read(one)) for one in all_folders(self._environ)])
        pools = [(folder, pool) for folder, pool in found if pool is not None]
        return await asyncio.gather(*(self._seen(folder, pool, counted=counted) for folder, pool in pools))

    async def manifest(self, pool: str, viewer: Viewer) -> Mapping[str, Any]:
        """The object as it was declared last, with its defaults.

        Raises:
            NotShownError: there is none.
        """
        found = await asyncio.to_thread(_declared, folder_of(pool, self._environ))
        if found is None:
            raise NotShownError(f"{pool} has no manifest")
        return dump_manifest(found)

    async def log(self, pool: str, name: str, viewer: Viewer) -> str:
        """The end of a log, without the pool's keys and without a terminal's colours.

        Raises:
            NotShownError: there is none of that name.
        """
        folder = folder_of(pool, self._environ)
        if name not in _logs(folder):
            raise NotShownError(f"{pool} has no log {name}")
        return await asyncio.to_thread(_text_of_log, folder, name)

    async def _seen(self, folder: PoolFolder, pool: RewardPool, *, counted: bool) -> Seen:
        workers = [
            PageWorker(
                name=worker.name,
                phase=worker.phase,
                place="" if worker.pid is None else f"pid {worker.pid}",
                revision=worker.revision,
                restarts=worker.restarts,
                in_flight=worker.in_flight,
            )
            for worker in pool.status.workers
        ]
        counts_ = await self._counts(folder) if counted and pool.status.url else None
        return Seen(pool=pool, workers=workers, counts=counts_, logs=_logs(folder))

    async def _counts(self, folder: PoolFolder) -> Counts | None:
        url = folder.read_metrics_url()
        if url is None:
            return None
        try:
            check_listener(HOST, URL(url).port or 0)
            async with self._session.get(f"{url}/metrics") as response:
                response.raise_for_status()
                return counts(await read_text(response, limit_bytes=MAX_METRICS_BYTES))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # One that starts or is busy; the page shows no rate then.
            log.debug("%s: the router's metrics are unknown: %s", folder.pool_key, error)
            return None


async def serve(environ: Mapping[str, str], *, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page on loopback until SIGINT or SIGTERM.

    Args:
        ready: gets the link that opens the page.

    Raises:
        AlreadyRunningError: it is served already.
        OSError: the port is taken.
    """
    folder, address, stopped = PageFolder(environ), f"http://{HOST}:{port}", asyncio.Event()
    with folder.serving(address):
        async with MachineSource.open(environ) as source:
            app = page_app(source, TokenFile(folder.token_file))
            runner = Runner(app, shutdown_timeout=SHUTDOWN_SECONDS)
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stopped.set)
            try:
                await runner.setup()
                await web.TCPSite(runner, HOST, port).start()
                ready(folder.link(address))
                await stopped.wait()
            finally:
                await runner.cleanup()


def _read(folder: PoolFolder) -> RewardPool | None:
    try:
        return folder.read_pool_as_it_is()
    except StateUnreadableError as error:
        log.warning("%s; the page leaves it out", error)
        return None


def _declared(folder: PoolFolder) -> RewardPool | None:
    try:
        return folder.read_wanted() or folder.read_pool()
    except StateUnreadableError as error:
        raise NotShownError(str(error)) from None


def _logs(folder: PoolFolder) -> list[str]:
    return sorted((file.stem for file in folder.logs.glob("*.log")), key=lambda name: (len(name), name))


def _text_of_log(folder: PoolFolder, name: str) -> str:
    text = tail(folder.logs / f"{name}.log", MAX_LOG_BYTES)
    return shown(text, (file.read_text().strip() for file in (folder.key_file, folder.admin_key_file) if file.exists()))
