"""When an object is applied, and when that counts as a repair. The API server is a fake that takes everything."""

import pytest
from support.kube_builders import a_pool

from rewardpool_operator.kubernetes import client, ensure
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.client import Object, Resource
from rewardpool_operator.kubernetes.ensure import Ensure, Known, NotOursError
from rewardpool_operator.metrics import Metrics

# Of a ConfigMap that no pool owns the store keeps no data.
OWNERS = [{"kind": "RewardPool", "name": "rm", "uid": "u", "controller": True}]
METADATA = {"name": "rm-files", "namespace": "rl", "labels": {"rewardpool.dev/pool": "rm"}, "ownerReferences": OWNERS}
MANIFEST = {"kind": "ConfigMap", "metadata": METADATA, "data": {"a": "1"}}


class FakeKube:
    """Has the pool, gives every object that is applied a new version; has one foreign object if told so."""

    def __init__(self, foreign: Object | None = None) -> None:
        self.applied: list[Object] = []
        self._foreign = foreign

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return {"metadata": {"uid": a_pool().metadata.uid}} if resource == client.POOLS else self._foreign

    async def apply(self, resource: Resource, manifest: Object) -> Object:
        self.applied.append(manifest)
        metadata = {"uid": "u", "resourceVersion": str(10 * len(self.applied))}
        return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


class Counted:
    """An upkeep with its surroundings, and what it counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kube: FakeKube) -> None:
        self.kube, self.store, self.known = kube, Store(), Known()
        self._metrics = Metrics()
        monkeypatch.setattr(ensure, "METRICS", self._metrics)

    async def bring_about(self, manifest: Object = MANIFEST, *, known: Known | None = None) -> bool:
        known = self.known if known is None else known
        return await Ensure(self.kube, self.store, a_pool(), known=known).bring_about(manifest)  # type: ignore[arg-type]

    def repairs(self) -> float | None:
        return self._metrics.registry.get_sample_value("rewardpool_object_repairs_total", {"kind": "ConfigMap"})

    def edit(self, **fields: object) -> None:
        live = self.store.find(client.CONFIG_MAPS, "rl", "rm-files")
        assert live is not None
        version = str(int(live["metadata"]["resourceVersion"]) + 1)
        self.store.put(
            client.CONFIG_MAPS, {**live, "metadata": {**live["metadata"], "resourceVersion": version}, **fields}
        )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch, FakeKube())


async def test_a_missing_object_is_made_once_and_is_no_repair(counted: Counted) -> None:
    assert await counted.bring_about()
    assert not await counted.bring_about()
    assert len(counted.kube.applied) == 1
    assert counted.repairs() is None


async def test_an_object_that_was_deleted_is_a_repair(counted: Counted) -> None:
    await counted.bring_about()
    counted.store.forget(client.CONFIG_MAPS, "rl", "rm-files")
    assert await counted.bring_about()
    assert counted.repairs() == 1


async def test_an_object_that_was_edited_is_a_repair_also_after_a_restart(counted: Counted) -> None:
    await counted.bring_about()
    restarted: Known = {}
    assert not await counted.bring_about(known=restarted)
    counted.edit(data={"a": "2"})
    assert await counted.bring_about(known=restarted)
    assert counted.repairs() == 1


async def test_another_manifest_is_no_repair(counted: Counted) -> None:
    await counted.bring_about()
    assert await counted.bring_about({**MANIFEST, "data": {"a": "2"}})
    assert counted.repairs() is None


async def test_an_object_of_somebody_else_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, FakeKube(foreign={"metadata": {"name": "rm-files", "uid": "other"}}))
    with pytest.raises(NotOursError, match="ConfigMap rm-files"):
        await counted.bring_about()
    assert counted.kube.applied == []
