"""A pool with all that is around it, for tests of whole passes.

The API server is a fake that keeps objects; routers and workers follow a script.
"""

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from support.kube_builders import a_pod, a_pool

from rewardpool_api import names
from rewardpool_control.snapshot import RegisteredWorker, Router
from rewardpool_kube import resources
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.budgets import Budgets
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.mounted_files import MountedFiles
from rewardpool_operator.kubernetes.polls import probes, reading
from rewardpool_operator.kubernetes.pool_reconciler import PoolReconciler
from rewardpool_operator.kubernetes.settings.pool_defaults import NO_DEFAULTS
from rewardpool_operator.kubernetes.shared import SharedParts
from rewardpool_operator.kubernetes.upgrade_slots import UpgradeSlots
from rewardpool_operator.probe import ProbeResult
from rewardpool_operator.routers.admin import RouterAdmin

KEY = ("rl", "rm")
URL = "http://10.0.0.7:8000"


class FakeKube:
    """Keeps objects, gives each write a version, and counts the writes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Resource, str], Object] = {}
        self.writes: list[str] = []
        self.away = False
        self.refused: dict[Resource | str, int] = {}
        """Kind, or name -> HTTP status with which every call about it is refused."""
        self.hung: set[Resource] = set()
        """Kinds of which every call hangs."""
        self.meanwhile: Callable[[], object] = lambda: None
        """Called whenever a call is under way: what somebody else does then."""
        self._version = 0

    def keep(self, resource: Resource, manifest: Object) -> Object:
        self._version += 1
        metadata = {"uid": f"uid-{manifest['metadata']['name']}", "generation": 1, "namespace": "rl"}
        metadata |= {"creationTimestamp": "2026-01-01T00:00:00Z", **manifest["metadata"]}
        metadata["resourceVersion"] = str(self._version)
        self.objects[resource, metadata["name"]] = found = {**deepcopy(manifest), "metadata": metadata}
        return deepcopy(found)

    def is_away(self) -> bool:
        return self.away

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        await self._answer(resource, name=name)
        return deepcopy(self.objects.get((resource, name)))

    async def apply(self, resource: Resource, manifest: Object, *, subresource: str = "") -> Object:
        await self._answer(resource, f"apply {manifest['kind']}")
        if not subresource:
            return self.keep(resource, manifest)
        found = self.objects.get((resource, manifest["metadata"]["name"]))
        if found is None:
            raise KubeError("apply", status=404, reason="NotFound", message="not found")
        # For the status of a custom resource no other field of the metadata is a precondition, not even the uid.
        version = manifest["metadata"].get("resourceVersion")
        if version not in (None, found["metadata"]["resourceVersion"]):
            raise KubeError("apply", status=409, reason="Conflict", message="the object has been modified")
        return self.keep(resource, {**found, "status": {**found.get("status", {}), **manifest["status"]}})

    async def create(self, resource: Resource, manifest: Object) -> Object:
        await self._answer(resource, f"create {manifest['kind']}")
        if (resource, manifest["metadata"]["name"]) in self.objects:
            raise KubeError("create", status=409, reason="AlreadyExists", message="already exists")
        return manifest if resource == resources.EVENTS else self.keep(resource, manifest)

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        await self._answer(resource, f"merge {resource.plural}")
        return self.keep(resource, _merged(self.objects[resource, name], patch))

    async def delete(self, resource: Resource, namespace: str, name: str, *, version: str | None = None) -> None:
        await self._answer(resource, f"delete {resource.plural}")
        self.objects.pop((resource, name), None)

    async def _answer(self, resource: Resource, write: str = "", *, name: str = "") -> None:
        self.meanwhile()
        await asyncio.sleep(0)
        self.meanwhile()
        if resource in self.hung:
            await asyncio.Event().wait()
        if self.away:
            raise KubeUnreachableError("nobody there")
        status = self.refused.get(resource) or self.refused.get(name)
        if status is not None:
            raise KubeError("call", status=status, reason="Refused", message="not today")
        self.writes += [write] if write else []


def _merged(found: Object, patch: Object) -> Object:
    """JSON merge patch."""
    merged = dict(found)
    for name, value in patch.items():
        if isinstance(value, dict):
            merged[name] = _merged(merged.get(name) or {}, value)
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


class Surroundings:
    """A pool with one worker and one router, both running."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kube, self.store = FakeKube(), Store()
        self.listed: list[str] = []
        self.silent = False
        self.files = MountedFiles(self.kube, self.store)  # type: ignore[arg-type]
        self.image, self.upgrade_slots, self.defaults = "x:1", UpgradeSlots(1), NO_DEFAULTS
        pool = json.loads(a_pool(replicas=1).model_dump_json(by_alias=True, exclude_none=True))
        self.store.put(resources.POOLS, self.kube.keep(resources.POOLS, pool))
        self.reconciler = self.a_reconciler()
        monkeypatch.setattr(RouterAdmin, "observe", self._observed)
        monkeypatch.setattr(RouterAdmin, "add", self._added)
        monkeypatch.setattr(probes, "probe_score", self._probed)
        monkeypatch.setattr(reading, "FIRST_PATIENCE_SECONDS", 0.01)

    def a_reconciler(self) -> PoolReconciler:
        poll_limit = asyncio.Semaphore(8)
        shared = SharedParts(
            kube=self.kube,  # type: ignore[arg-type]
            session=None,  # type: ignore[arg-type]
            store=self.store,
            files=self.files,
            image=self.image,
            identity=None,
            poll_limit=poll_limit,
            budgets=Budgets(self.store),
            upgrade_slots=self.upgrade_slots,
            defaults=self.defaults,
        )
        return PoolReconciler(shared, KEY, wake=lambda: None)

    def declare(self, **spec: Any) -> Object:
        """Somebody changes these fields of the spec, and the watch tells of it."""
        found = self.kube.objects[resources.POOLS, "rm"]
        metadata = {**found["metadata"], "generation": found["metadata"]["generation"] + 1}
        pool = self.kube.keep(resources.POOLS, {**found, "metadata": metadata, "spec": {**found["spec"], **spec}})
        self.store.put(resources.POOLS, pool)
        return pool

    def make_anew(self, *, told: bool) -> None:
        """Somebody deletes the pool and makes it again; what it owned is not collected yet.

        Args:
            told: whether the watch tells of it at once.
        """
        found = self.kube.objects[resources.POOLS, "rm"]
        metadata = {**found["metadata"], "uid": "another", "generation": 1}
        pool = self.kube.keep(resources.POOLS, {**found, "metadata": metadata, "status": {}})
        if told:
            self.store.put(resources.POOLS, pool)

    def collect(self) -> None:
        """Delete what a pool controls that is gone, as the garbage collector does."""
        uid = self.pool["metadata"]["uid"]
        for (resource, name), found in tuple(self.kube.objects.items()):
            owners = {one["uid"] for one in found["metadata"].get("ownerReferences", []) if one["kind"] == names.KIND}
            if owners and uid not in owners:
                del self.kube.objects[resource, name]
                self.store.forget(resource, "rl", name)

    def plant(self, resource: Resource, name: str, *, labels: Object, owners: list[Object], **fields: Any) -> Object:
        """Somebody else makes an object."""
        metadata = {"name": name, "labels": labels, "ownerReferences": owners}
        planted = self.kube.keep(resource, {"metadata": metadata, **fields})
        self.store.put(resource, planted)
        return planted

    @property
    def pool(self) -> Object:
        """The pool as the API server has it."""
        return self.kube.objects[resources.POOLS, "rm"]

    def condition(self, kind: str) -> Object:
        """The pool's condition of this type; empty when it has none."""
        conditions = self.pool.get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    async def reconcile(self, acting: Acting = Acting.FULL) -> list[str]:
        """One pass; what it wrote."""
        before = len(self.kube.writes)
        await asyncio.sleep(0.001)  # what is polled in the background goes on
        if await self.reconciler.reconcile(acting, pools=1) is None:
            self.reconciler.close()
            self.store.put(resources.POOLS, self.pool)
            self.reconciler = self.a_reconciler()
        return self.kube.writes[before:]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Make a pass, which may never end, until this holds."""
        looking = asyncio.ensure_future(self.reconcile())
        try:
            async with asyncio.timeout(5):
                while not holds():  # noqa: ASYNC110 - a pass tells nobody how far it is
                    await asyncio.sleep(0.01)
        finally:
            looking.cancel()

    async def bring_up(self) -> None:
        """Until the pool serves."""
        deployments: tuple[Object, ...] = ()
        while not deployments:
            await self.reconcile()
            objects = self.store.objects(KEY)
            assert objects is not None
            deployments = objects.worker_deployments()
        (deployment,) = deployments
        worker, router = a_pod(), a_pod("r0", component=names.COMPONENT_ROUTER, ip="10.0.0.8")
        worker["metadata"]["labels"][names.LABEL_REVISION] = deployment["metadata"]["labels"][names.LABEL_REVISION]
        for pod in (worker, router):
            self.store.put(resources.PODS, self.kube.keep(resources.PODS, pod))
        for _ in range(6):
            await self.reconcile()

    async def _observed(self, name: str) -> Router:
        if self.silent:
            await asyncio.Event().wait()
        registered = tuple(RegisteredWorker(id=url, url=url, in_flight=0) for url in self.listed)
        return Router(name=name, answering=True, registered=registered, waiting=0)

    async def _added(self, worker_url: str) -> None:
        self.listed.append(worker_url)

    async def _probed(self, *_: Any, **__: Any) -> ProbeResult:
        return ProbeResult(ok=True, max_model_len=4096)
