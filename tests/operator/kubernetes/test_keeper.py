"""Whole passes over one pool. The API server is a fake that keeps objects; routers and workers follow a script."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

import pytest
from support.kube_builders import a_pod, a_pool

from rewardpool_api import names
from rewardpool_operator.kubernetes import client
from rewardpool_operator.kubernetes.budgets import Budgets
from rewardpool_operator.kubernetes.client import KubeUnreachableError, Object, Resource
from rewardpool_operator.kubernetes.keeper import Keeper, Shared
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.questions import asking, lengths
from rewardpool_operator.kubernetes.watch.store import Store
from rewardpool_operator.probe import ProbeResult
from rewardpool_operator.router_admin import RouterAdmin
from rewardpool_operator.snapshot import RegisteredWorker, Router

KEY = ("rl", "rm")
URL = "http://10.0.0.7:8000"


class FakeKube:
    """Keeps objects, gives each write a version, and counts the writes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Resource, str], Object] = {}
        self.writes: list[str] = []
        self.away = False
        self._version = 0

    def keep(self, resource: Resource, manifest: Object) -> Object:
        self._version += 1
        metadata = {"uid": f"uid-{manifest['metadata']['name']}", "generation": 1, "namespace": "rl"}
        metadata |= {"creationTimestamp": "2026-01-01T00:00:00Z", **manifest["metadata"]}
        metadata["resourceVersion"] = str(self._version)
        self.objects[resource, metadata["name"]] = found = {**deepcopy(manifest), "metadata": metadata}
        return deepcopy(found)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        self._answer()
        return deepcopy(self.objects.get((resource, name)))

    async def apply(self, resource: Resource, manifest: Object, *, subresource: str = "") -> Object:
        self._answer(f"apply {manifest['kind']}")
        if not subresource:
            return self.keep(resource, manifest)
        found = self.objects[resource, manifest["metadata"]["name"]]
        return self.keep(resource, {**found, "status": {**found.get("status", {}), **manifest["status"]}})

    async def create(self, resource: Resource, manifest: Object) -> Object:
        self._answer(f"create {manifest['kind']}")
        return manifest

    def _answer(self, write: str = "") -> None:
        if self.away:
            raise KubeUnreachableError("nobody there")
        self.writes += [write] if write else []


class Surroundings:
    """A pool with one worker and one router, both running."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kube, self.store = FakeKube(), Store()
        self.listed: list[str] = []
        self.silent = False
        pool = json.loads(a_pool(replicas=1).model_dump_json(by_alias=True, exclude_none=True))
        self.store.put(client.POOLS, self.kube.keep(client.POOLS, pool))
        self.keeper = self.a_keeper()
        monkeypatch.setattr(RouterAdmin, "observe", self._observed)
        monkeypatch.setattr(RouterAdmin, "add", self._added)
        monkeypatch.setattr(lengths, "probe_score", self._probed)
        monkeypatch.setattr(asking, "FIRST_PATIENCE_SECONDS", 0.01)

    def a_keeper(self) -> Keeper:
        aside = asyncio.Semaphore(8)
        shared = Shared(
            kube=self.kube,  # type: ignore[arg-type]
            session=None,  # type: ignore[arg-type]
            store=self.store,
            image="x:1",
            place=None,
            aside=aside,
            budgets=Budgets(self.store),
        )
        return Keeper(shared, KEY, wake=lambda: None)

    async def look(self, acting: Acting = Acting.FULL) -> list[str]:
        """One pass; what it wrote."""
        before = len(self.kube.writes)
        await self.keeper.look(acting, pools=1)
        return self.kube.writes[before:]

    async def bring_up(self) -> None:
        """Until the pool serves."""
        await self.look()
        objects = self.store.objects(KEY)
        assert objects is not None
        (deployment,) = objects.worker_deployments()
        worker, router = a_pod(), a_pod("r0", component=names.COMPONENT_ROUTER, ip="10.0.0.8")
        worker["metadata"]["labels"][names.LABEL_REVISION] = deployment["metadata"]["labels"][names.LABEL_REVISION]
        for pod in (worker, router):
            self.store.put(client.PODS, self.kube.keep(client.PODS, pod))
        for _ in range(6):
            await self.look()

    async def _observed(self, name: str) -> Router:
        if self.silent:
            await asyncio.Event().wait()
        registered = tuple(RegisteredWorker(id=url, url=url, in_flight=0) for url in self.listed)
        return Router(name=name, answering=True, registered=registered, waiting=0)

    async def _added(self, worker_url: str) -> None:
        self.listed.append(worker_url)

    async def _probed(self, *_: Any, **__: Any) -> ProbeResult:
        return ProbeResult(ok=True, max_model_len=4096)


@pytest.fixture
async def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    around = Surroundings(monkeypatch)
    await around.bring_up()
    return around


def ready(around: Surroundings) -> int:
    pool = around.store.pool(KEY)
    assert pool is not None
    count: int = pool["status"]["readyReplicas"]
    return count


async def test_a_pool_is_brought_up_and_then_nothing_is_written(around: Surroundings) -> None:
    assert (ready(around), around.listed) == (1, [URL])
    for _ in range(3):
        assert await around.look() == []


async def test_a_restarted_operator_writes_nothing(around: Surroundings) -> None:
    around.keeper = around.a_keeper()
    for _ in range(3):
        assert await around.look() == []


async def test_a_restarted_operator_that_has_not_heard_the_routers_yet_writes_nothing(around: Surroundings) -> None:
    around.keeper = around.a_keeper()
    around.silent = True
    assert await around.look() == []


async def test_a_router_that_falls_silent_keeps_its_list_until_its_silence_is_certain(around: Surroundings) -> None:
    around.silent = True
    assert await around.look() == []
    assert ready(around) == 1


@pytest.mark.parametrize("mishap", ["away", "not leading"])
async def test_a_router_that_lost_its_list_gets_it_back_without_the_api_server(
    around: Surroundings, mishap: str
) -> None:
    around.listed.clear()
    around.kube.away = mishap == "away"
    assert await around.look(Acting.ROUTERS) == []
    assert around.listed == [URL]


async def test_a_deleted_secret_comes_back_with_its_keys(around: Surroundings) -> None:
    before = around.kube.objects.pop((client.SECRETS, "rm-key"))
    witness = around.kube.objects[client.CONFIG_MAPS, "rm-files"]
    owners = [owner for owner in witness["metadata"]["ownerReferences"] if owner["name"] != "rm-key"]
    # What the garbage collector does.
    metadata = {**witness["metadata"], "ownerReferences": owners}
    around.store.put(client.CONFIG_MAPS, around.kube.keep(client.CONFIG_MAPS, {**witness, "metadata": metadata}))
    assert await around.look() == ["apply Secret", "apply ConfigMap"]
    assert around.kube.objects[client.SECRETS, "rm-key"]["data"] == before["data"]


async def test_a_pool_with_fields_of_a_newer_crd_is_looked_after(around: Surroundings) -> None:
    pool = around.kube.objects[client.POOLS, "rm"]
    newer = {"spec": {**pool["spec"], "rollout": {"canary": {"percent": 5}}}}
    metadata = {**pool["metadata"], "generation": 2}
    around.store.put(client.POOLS, around.kube.keep(client.POOLS, {**pool, **newer, "metadata": metadata}))
    await around.look()
    assert around.kube.objects[client.POOLS, "rm"]["status"]["observedGeneration"] == 2


async def test_a_pool_that_is_gone_has_no_next_pass(around: Surroundings) -> None:
    around.store.forget(client.POOLS, *KEY)
    assert await around.keeper.look(Acting.FULL, pools=1) is None


@pytest.mark.parametrize("away", [True, False])
async def test_a_pass_that_fails_comes_again_soon(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    around.kube.away = away
    around.keeper = around.a_keeper()
    broken: Callable[..., Awaitable[None]] = _raises
    monkeypatch.setattr(RouterAdmin, "observe", broken)
    again = await around.keeper.look(Acting.FULL, pools=1000)
    assert again is not None
    assert 0.5 < again < 2.0


async def _raises(*_: object) -> None:
    raise ZeroDivisionError("a defect")
