"""Data of the pools for the page: a JSON object per line and pool, from the store.

Of the spec it has what the page shows, and nothing of variables, arguments or pod templates. A line is made again only
when one of the pool's objects changed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from rewardpool_api import names
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects, are_the_same
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.page.workers import shown_worker
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_operator.kubernetes.workload.containers import CONTAINER_ROUTER, CONTAINER_WORKER, PORT_METRICS
from rewardpool_operator.left_out import leave_out, readable
from rewardpool_runtime.untrusted import NONSENSE

POOLS_AT_ONCE: Final = 20  # takes some milliseconds; passes of pools have their turn in between
SHOWN: Final = {"model": ("type", "source"), "engine": ("name",), "worker": ("gpus",), "router": ("flavor",)}


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Line of a pool's objects; it holds as long as they are the same."""

    pool: Object
    pods: tuple[Object, ...]
    text: bytes


class Offer:
    """The pools of a store, as lines."""

    def __init__(self, store: Store, *, is_being_listed: Callable[[str], bool]) -> None:
        self._store = store
        self._is_being_listed = is_being_listed
        self._lines: dict[Key, _Line] = {}

    async def pools(self) -> bytes:
        """Return a line per pool, but for those of which not all is known yet."""
        lines: dict[Key, _Line] = {}
        for number, key in enumerate(self._store.pools(), start=1):
            if (line := self._line(key)) is not None:
                lines[key] = line
            if number % POOLS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._lines = lines
        return b"\n".join(line.text for line in lines.values())

    def _line(self, key: Key) -> _Line | None:
        objects = self._store.objects(key)
        if objects is None or self._is_being_listed(key[0]):
            return None
        before = self._lines.get(key)
        if before is not None and before.pool is objects.pool and are_the_same(before.pods, objects.pods):
            return before
        try:
            return _Line(pool=objects.pool, pods=objects.pods, text=orjson.dumps(_offered(objects)))
        except NONSENSE as error:
            leave_out("objects", "/".join(key), error)
            return None


def _offered(objects: Objects) -> dict[str, Any]:
    """Return a pool's objects for the page; a malformed one raises one of `NONSENSE`."""
    workers, routers = (objects.pods_of(component) for component in (names.COMPONENT_WORKER, names.COMPONENT_ROUTER))
    running = [pod for pod in routers if pods.router_is_running(pod)]
    urls = (pods.address(pod, CONTAINER_ROUTER, PORT_METRICS) for pod in running)
    return {
        "pool": {"metadata": _metadata(objects.pool), "spec": _spec(objects.pool), "status": objects.status},
        "workers": [(url, asdict(worker)) for url, worker in readable("pods", workers, shown_worker, name=_name_of)],
        "metrics": [url for url in urls if url is not None],
        "logs": {_name_of(pod): CONTAINER_WORKER for pod in workers}
        | {_name_of(pod): CONTAINER_ROUTER for pod in routers},
    }


def _metadata(pool: Object) -> Object:
    return {name: pool["metadata"].get(name) for name in ("name", "namespace", "uid")}


def _spec(pool: Object) -> Object:
    spec = pool["spec"]
    whole = {name: spec[name] for name in ("autoscaling", "replicas") if name in spec}
    return whole | {
        part: {name: value for name, value in spec[part].items() if name in shown}
        for part, shown in SHOWN.items()
        if isinstance(spec.get(part), dict)
    }


def _name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])
