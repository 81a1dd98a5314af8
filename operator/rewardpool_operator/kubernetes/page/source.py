"""The pools of a cluster as the page asks for them: from the operator's store, without a call to the API server."""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

import aiohttp

from rewardpool_api import RewardPool, names
from rewardpool_kube.client import Kube
from rewardpool_kube.configuration import Configuration
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import SECRETS, Object
from rewardpool_operator.kubernetes import pods
from rewardpool_operator.kubernetes.cache.objects import Objects, are_the_same
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.containers import CONTAINER_ROUTER, CONTAINER_WORKER, PORT_METRICS
from rewardpool_operator.kubernetes.page.access import TokenViewer
from rewardpool_operator.kubernetes.page.logs import PodLogs
from rewardpool_operator.kubernetes.page.reviews import REMEMBER_SECONDS, Remembered
from rewardpool_operator.kubernetes.page.routers import MAX_ROUTERS, Counted, RouterCounts
from rewardpool_operator.kubernetes.page.workers import shown_worker
from rewardpool_operator.kubernetes.stored_pool import StoredPool
from rewardpool_operator.left_out import leave_out, readable
from rewardpool_page.access import Viewer
from rewardpool_page.log_text import shown
from rewardpool_page.source import LogNotFoundError, Seen, Worker
from rewardpool_runtime.untrusted import NONSENSE

POOLS_AT_ONCE: Final = 20
"""Read in one go, which takes some milliseconds at first; passes of pools have their turn in between."""
MAX_SECRETS: Final = 256
"""Pools whose keys are remembered for some seconds, to be left out of logs."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What was read of a pool's objects; it holds as long as they are the same."""

    pool_object: Object
    pods: tuple[Object, ...]
    pool: RewardPool
    workers: tuple[tuple[str, Worker], ...]
    """Behind the URLs by which routers know them."""
    metrics: tuple[str, ...]
    """Base URLs of its running routers' metrics."""
    logs: tuple[str, ...]
    """Names of the pods."""


class ClusterSource:
    """The pools that the operator watches."""

    starts_by = "kubectl apply -f pool.yaml"

    def __init__(
        self,
        store: Store,
        kube: Kube,
        routers: RouterCounts,
        logs: PodLogs,
        *,
        is_being_listed: Callable[[str], bool],
        namespaces: Sequence[str] = (),
    ) -> None:
        self.where = f"in {', '.join(namespaces)}" if namespaces else "in this cluster"
        self._store = store
        self._kube = kube
        self._routers = routers
        self._logs = logs
        self._is_being_listed = is_being_listed
        self._known: dict[Key, _Known] = {}
        self._keys: Remembered[Key, tuple[str, ...]] = Remembered(seconds=REMEMBER_SECONDS, most=MAX_SECRETS)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: Store,
        kube: Kube,
        configuration: Configuration,
        *,
        is_being_listed: Callable[[str], bool],
        namespaces: Sequence[str],
    ) -> AsyncIterator[Self]:
        """With connections of its own, to routers and to the API server."""
        connector = aiohttp.TCPConnector(limit=MAX_ROUTERS)
        async with aiohttp.ClientSession(connector=connector) as session, PodLogs.open(configuration) as logs:
            routers = RouterCounts(session)
            yield cls(store, kube, routers, logs, is_being_listed=is_being_listed, namespaces=namespaces)

    async def look(self, *, counted: bool) -> Sequence[Seen]:
        """All pools as the watches last said."""
        self._known = {key: known async for key, known in self._readings()}
        if counted:
            await self._routers.ask({known.pool.key: known.metrics for known in self._known.values()})
        return [self._seen(known, counted=counted) for known in self._known.values()]

    async def log(self, pool: str, name: str, viewer: Viewer) -> str:
        """The end of a pod's log, without the pool's keys.

        Raises:
            LogNotFoundError: there is none of that name, or the viewer may not read it.
            OSError: the API server does not answer.
        """
        namespace, _, pool_name = pool.partition("/")
        known = self._known.get((namespace, pool_name))
        found = next((pod for pod in known.pods if pod["metadata"]["name"] == name), None) if known else None
        if found is None or not isinstance(viewer, TokenViewer):
            raise LogNotFoundError(f"{pool} has no pod {name}")
        container = CONTAINER_ROUTER if _is_router(found) else CONTAINER_WORKER
        text = await self._logs.end(namespace, name, container, token=viewer.token)
        return shown(text, await self._keys.get((namespace, pool_name), lambda: self._read_keys(namespace, pool_name)))

    async def _readings(self) -> AsyncIterator[tuple[Key, _Known]]:
        for number, key in enumerate(self._store.pools(), start=1):
            if (known := self._read(key)) is not None:
                yield key, known
            if number % POOLS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _read(self, key: Key) -> _Known | None:
        objects = self._store.objects(key)
        if objects is None or self._is_being_listed(key[0]):
            return None
        before = self._known.get(key)
        if before is not None and before.pool_object is objects.pool and are_the_same(before.pods, objects.pods):
            return before
        try:
            return _known(objects)
        except NONSENSE as error:
            leave_out("objects", "/".join(key), error)
            return None

    def _seen(self, known: _Known, *, counted: bool) -> Seen:
        said = self._routers.of(known.pool.key) if counted else Counted()
        workers = [replace(worker, in_flight=said.in_flight.get(url)) for url, worker in known.workers]
        return Seen(pool=known.pool, workers=workers, counts=said.counts, logs=known.logs)

    async def _read_keys(self, namespace: str, pool: str) -> tuple[str, ...]:
        """Every entry of the pool's Secrets.

        Raises:
            OSError: they cannot be read, so nobody knows what to leave out.
        """
        found: list[str] = []
        for name in (names.key_secret(pool), names.admin_secret(pool)):
            try:
                secret = await self._kube.get(SECRETS, namespace, name)
            except (KubeError, KubeUnreachableError):
                raise OSError("the pool's keys cannot be read, which logs are shown without") from None
            found += [key for value in ((secret or {}).get("data") or {}).values() if (key := _decoded(value))]
        return tuple(found)


def _is_router(pod: Object) -> bool:
    return bool(pod["metadata"]["labels"].get(names.LABEL_COMPONENT) == names.COMPONENT_ROUTER)


def _name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _known(objects: Objects) -> _Known:
    """What the page needs of a pool's objects; one that makes no sense raises one of `NONSENSE`."""
    workers, routers = (objects.pods_of(component) for component in (names.COMPONENT_WORKER, names.COMPONENT_ROUTER))
    running = [pod for pod in routers if pods.router_is_running(pod)]
    urls = (pods.address(pod, CONTAINER_ROUTER, PORT_METRICS) for pod in running)
    pool = StoredPool.parse(objects.pool).pool
    shown_here = partial(shown_worker, parked=pool.status.parked_workers)
    return _Known(
        pool_object=objects.pool,
        pods=objects.pods,
        pool=pool,
        workers=tuple(readable("pods", workers, shown_here, name=_name_of)),
        metrics=tuple(url for url in urls if url is not None),
        logs=tuple(_name_of(pod) for pod in (*workers, *routers)),
    )


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value).decode().strip()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
