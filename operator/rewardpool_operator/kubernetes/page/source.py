"""The pools of a cluster as the page asks for them: what the operator tells of them, and what their routers count."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import aiohttp
import orjson

from rewardpool_api import RewardPool
from rewardpool_operator.kubernetes.page.access import TokenViewer
from rewardpool_operator.kubernetes.page.api_server import ApiServer
from rewardpool_operator.kubernetes.page.logs import end_of_log
from rewardpool_operator.kubernetes.page.manifests import stored_manifest
from rewardpool_operator.kubernetes.page.routers import MAX_ROUTERS, Counted, RouterCounts
from rewardpool_operator.kubernetes.page.workers import READY
from rewardpool_operator.kubernetes.stored_pool import StoredPool
from rewardpool_operator.left_out import leave_out
from rewardpool_page.access import Viewer
from rewardpool_page.log_text import shown
from rewardpool_page.source import NotShownError, PageWorker, Seen
from rewardpool_runtime.untrusted import NONSENSE

POOLS_AT_ONCE: Final = 20  # takes some milliseconds; requests have their turn in between


@dataclass(frozen=True, kw_only=True)
class _Known:
    pool: RewardPool
    workers: tuple[tuple[str, PageWorker], ...]
    """Behind the URLs by which routers know them."""
    metrics: tuple[str, ...]
    logs: dict[str, str]
    """Names of the pods, with the container of which the log is shown."""


class ClusterSource:
    """The pools that the operator watches."""

    starts_by = "kubectl apply -f pool.yaml"

    def __init__(
        self,
        pools: Callable[[], Awaitable[bytes]],
        routers: RouterCounts,
        server: ApiServer,
        *,
        namespaces: Sequence[str] = (),
    ) -> None:
        """Read nothing yet.

        Args:
            pools: Returns the operator's lines, or raises OSError; see `offer.py`.
            namespaces: That the operator watches; none of them means all.
        """
        self.where = f"in {', '.join(namespaces)}" if namespaces else "in this cluster"
        self._pools = pools
        self._routers = routers
        self._server = server
        self._lines: dict[bytes, _Known] = {}
        self._known: dict[str, _Known] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, pools: Callable[[], Awaitable[bytes]], server: ApiServer, *, namespaces: Sequence[str]
    ) -> AsyncIterator[Self]:
        connector = aiohttp.TCPConnector(limit=MAX_ROUTERS)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield cls(pools, RouterCounts(session), server, namespaces=namespaces)

    async def observe(self, *, counted: bool) -> Sequence[Seen]:
        lines: dict[bytes, _Known] = {}
        for number, line in enumerate((await self._pools()).splitlines(), start=1):
            if (known := self._lines.get(line) or _read(line)) is not None:
                lines[line] = known
            if number % POOLS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._lines = lines
        self._known = {known.pool.key: known for known in lines.values()}
        if counted:
            await self._routers.refresh({pool: known.metrics for pool, known in self._known.items()})
        return [self._seen(known, counted=counted) for known in self._known.values()]

    async def manifest(self, pool: str, viewer: Viewer) -> Mapping[str, Any]:
        """The object as the API server gives it to the viewer's own token.

        Raises:
            NotShownError: there is none, or the viewer may not read it.
            OSError: the API server does not answer.
        """
        namespace, _, name = pool.partition("/")
        if not isinstance(viewer, TokenViewer):
            raise NotShownError(f"{pool} is read with a token alone")
        return await stored_manifest(self._server, namespace, name, token=viewer.token)

    async def log(self, pool: str, name: str, viewer: Viewer) -> str:
        """The end of a pod's log, as the viewer's own token shows it.

        Raises:
            NotShownError: there is none of that name, or the viewer may not read it.
            OSError: the API server does not answer.
        """
        namespace, _, _ = pool.partition("/")
        container = self._known[pool].logs.get(name) if pool in self._known else None
        if container is None or not isinstance(viewer, TokenViewer):
            raise NotShownError(f"{pool} has no pod {name}")
        # Without the pool's keys, which nobody here knows: who may read a log may read them in it by kubectl as well.
        return shown(await end_of_log(self._server, namespace, name, container, token=viewer.token), keys=())

    def _seen(self, known: _Known, *, counted: bool) -> Seen:
        said = self._routers.get(known.pool.key) if counted else Counted()
        workers = [replace(worker, in_flight=said.in_flight.get(url)) for url, worker in known.workers]
        return Seen(pool=known.pool, workers=workers, counts=said.counts, logs=tuple(known.logs))


def _read(line: bytes) -> _Known | None:
    try:
        return _known(orjson.loads(line))
    except NONSENSE as error:
        leave_out("objects", "of the operator's", error)
        return None


def _known(offered: Any) -> _Known:
    pool = StoredPool.parse(offered["pool"]).pool
    parked = pool.status.parked_workers
    workers = ((url, PageWorker(**worker)) for url, worker in offered["workers"])
    return _Known(
        pool=pool,
        workers=tuple(
            (url, replace(worker, phase="Parked") if worker.phase == READY and worker.name in parked else worker)
            for url, worker in workers
        ),
        metrics=tuple(offered["metrics"]),
        logs=offered["logs"],
    )
