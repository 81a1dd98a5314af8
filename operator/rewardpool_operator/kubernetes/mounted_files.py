"""The ConfigMaps of mounted files: one a namespace and content, which all pools there mount.

They are 110 kB, too much to write for every pool. So no pool owns them, and no owner reference takes them away: one for
each pool would be a write for each pool. The operator deletes one itself, once it is of no use for `KEEP_SECONDS`:
no pool wants it, and no Deployment's template and no pod in the namespace mounts it, whether the pod's pool is there or
not. What is deleted by hand comes back, as every pool of the namespace looks for its own.

A name vouches for the content: it has the content's hash, and what is made is immutable. What is there under such a
name with other content is never mounted: it is left alone, and the pools that need the name say so.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.owned import content_of
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.ensure import NotOursError
from rewardpool_operator.kubernetes.revisions import files_of
from rewardpool_operator.metrics import METRICS

log = logging.getLogger(__name__)

KEEP_SECONDS: Final = 120.0  # longer than a pass takes to deploy pods that mount them
LOOK_SECONDS: Final = 10.0

FilesRef = tuple[str, str]
"""Namespace and name of a ConfigMap of files."""


class MountedFiles:
    """Mounted files of all namespaces; `gone` receives the pools that may need what was deleted."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        *,
        may_act: Callable[[], bool] = lambda: True,
        is_known: Callable[[str], bool] = lambda _: True,
        gone: Callable[[Iterable[Key]], None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._kube = kube
        self._store = store
        self._may_act = may_act
        self._is_known = is_known
        self._gone = gone
        self._clock = clock
        self._used_at: dict[FilesRef, float] = {}
        self._locks: defaultdict[FilesRef, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._seen: set[FilesRef] = set()

    async def ensure(self, manifest: Object) -> None:
        """Make the ConfigMap, unless it is there; keep it for now.

        Raises:
            NotOursError: one of that name has other files, or can still change.
        """
        ref = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        self._used_at[ref] = self._clock()
        if not self._locks[ref].locked() and self._is_there(ref):
            return
        async with self._locks[ref]:
            if self._is_there(ref):
                return
            if ref in self._seen:
                METRICS.object_repaired("ConfigMap")
            self._store.put(resources.CONFIG_MAPS, await self._made(manifest))
            self._seen.add(ref)

    async def run(self) -> None:
        """Delete what is of no use, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._may_act():
                continue
            try:
                await self.remove_unused()
            except (KubeError, KubeUnreachableError) as error:
                log.warning("mounted files that nothing mounts are still there: %s", error)
            except Exception:
                # Whatever somebody wrote into an object must not end the care for pools.
                log.exception("mounted files that nothing mounts are not looked for now")

    async def remove_unused(self) -> None:
        """Delete what no pool wanted and nothing mounted for `KEEP_SECONDS`."""
        now = self._clock()
        for namespace in self._store.namespaces_with_files():
            there = [(namespace, found["metadata"]["name"]) for found in self._store.files(namespace)]
            old = [ref for ref in there if now - self._used_at.setdefault(ref, now) >= KEEP_SECONDS]
            if not old or not self._is_known(namespace):
                continue
            mounted = self._mounted(namespace)
            for ref in old:
                if ref[1] in mounted:
                    self._used_at[ref] = now
                else:
                    await self._remove(ref)

    def _is_there(self, ref: FilesRef) -> bool:
        live = self._store.find(resources.CONFIG_MAPS, *ref)
        # One of this name with a pool's label is somebody's own.
        if live is None or "content" not in live:
            return False
        _check(ref[1], live["content"])
        self._seen.add(ref)
        return True

    async def _made(self, manifest: Object) -> Object:
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        try:
            return await self._kube.create(resources.CONFIG_MAPS, manifest)
        except KubeError as error:
            found = await self._kube.get(resources.CONFIG_MAPS, namespace, name) if error.is_conflict else None
            if found is None:
                raise
        # No watch told of it yet, or it lacks the labels by which it would.
        _check(name, content_of(found))
        wanted, labels = manifest["metadata"]["labels"], found["metadata"].get("labels") or {}
        if all(labels.get(label) == value for label, value in wanted.items()):
            return found
        return await self._kube.merge(resources.CONFIG_MAPS, namespace, name, {"metadata": {"labels": wanted}})

    def _mounted(self, namespace: str) -> set[str]:
        found: set[str] = set()
        for item in self._store.mounting(namespace):
            found |= files_of(item) | files_of(item["spec"].get("template") or {})
        return found

    async def _remove(self, ref: FilesRef) -> None:
        async with self._locks[ref]:
            live = self._store.find(resources.CONFIG_MAPS, *ref)
            # Somebody may have wanted it since: both waited for the lock, or for another one that was deleted first.
            if live is None or self._clock() - self._used_at[ref] < KEEP_SECONDS or ref[1] in self._mounted(ref[0]):
                return
            log.info("ConfigMap %s/%s goes: nothing mounts its files", *ref)
            try:
                version = live["metadata"]["resourceVersion"]
                await self._kube.delete(resources.CONFIG_MAPS, *ref, version=version)
            except KubeError as error:
                if not error.is_conflict:
                    raise
                return  # Somebody edited it meanwhile.
            self._seen.discard(ref)
            del self._used_at[ref]
            self._gone(self._store.forget(resources.CONFIG_MAPS, *ref))


def _check(name: str, content: str | None) -> None:
    if content is None or names.files_config_map(content) != name:
        raise NotOursError(f"ConfigMap {name} is there with other files, or may be edited: delete it")
