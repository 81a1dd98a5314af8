"""When an object is applied, and when that counts as a repair. The API server is a fake that takes everything."""

import pytest
from support.kube_builders import a_pool

from rewardpool_kube import resources
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes import ensure
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.ensure import Ensure, Known, NotOursError
from rewardpool_operator.kubernetes.manifests.diff import stamped
from rewardpool_operator.metrics import Metrics

# Of a ConfigMap that no pool owns the store keeps no data.
OWNERS = [{"kind": "RewardPool", "name": "rm", "uid": "pool-uid", "controller": True}]
METADATA = {"name": "rm-pins", "namespace": "rl", "labels": {"rewardpool.dev/pool": "rm"}, "ownerReferences": OWNERS}
MANIFEST = {"kind": "ConfigMap", "metadata": METADATA, "data": {"a": "1"}}


class FakeKube:
    """Has the pool, gives every object that is written a new version; has one foreign object if told so."""

    def __init__(self, foreign: Object | None = None) -> None:
        self.writes: list[str] = []
        self.asked: list[str] = []
        self._foreign = foreign

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        self.asked.append(name)
        return {"metadata": {"uid": a_pool().metadata.uid}} if resource == resources.POOLS else self._foreign

    async def create(self, resource: Resource, manifest: Object) -> Object:
        if self._foreign is not None:
            raise KubeError("create", status=409, reason="AlreadyExists", message="already exists")
        return self._written("create", manifest)

    async def apply(self, resource: Resource, manifest: Object) -> Object:
        return self._written("apply", manifest)

    def _written(self, verb: str, manifest: Object) -> Object:
        self.writes.append(verb)
        metadata = {"uid": "u", "resourceVersion": str(10 * len(self.writes))}
        return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


class Counted:
    """An upkeep with its surroundings, and what it counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kube: FakeKube) -> None:
        self.kube, self.store, self.known = kube, Store(), Known()
        self._metrics = Metrics()
        monkeypatch.setattr(ensure, "METRICS", self._metrics)

    async def apply(self, manifest: Object = MANIFEST, *, known: Known | None = None) -> bool:
        known = self.known if known is None else known
        return await Ensure(self.kube, self.store, a_pool(), known=known).apply(stamped(manifest))  # type: ignore[arg-type]

    def repairs(self) -> float | None:
        return self._metrics.registry.get_sample_value("rewardpool_object_repairs_total", {"kind": "ConfigMap"})

    def edit(self, **fields: object) -> None:
        live = self.store.find(resources.CONFIG_MAPS, "rl", "rm-pins")
        assert live is not None
        version = str(int(live["metadata"]["resourceVersion"]) + 1)
        self.store.put(
            resources.CONFIG_MAPS, {**live, "metadata": {**live["metadata"], "resourceVersion": version}, **fields}
        )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch, FakeKube())


async def test_a_missing_object_is_made_once_and_is_no_repair(counted: Counted) -> None:
    assert await counted.apply()
    assert not await counted.apply()
    assert counted.kube.writes == ["create"]
    assert counted.repairs() is None


async def test_nothing_is_read_before_the_objects_of_a_new_pool_are_made(counted: Counted) -> None:
    await counted.apply()
    assert counted.kube.asked == []


async def test_the_pool_is_asked_for_before_what_was_there_is_made_again(counted: Counted) -> None:
    await counted.apply()
    counted.store.forget(resources.CONFIG_MAPS, "rl", "rm-pins")
    await counted.apply()
    assert counted.kube.asked == [a_pool().metadata.name]


async def test_an_object_of_ours_that_the_store_does_not_know_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    unlabelled = {**METADATA, "labels": {}}
    counted = Counted(monkeypatch, FakeKube(foreign={"metadata": unlabelled}))
    assert await counted.apply()
    assert counted.kube.writes == ["apply"]


async def test_what_is_changed_is_applied(counted: Counted) -> None:
    await counted.apply()
    await counted.apply({**MANIFEST, "data": {"a": "2"}})
    assert counted.kube.writes == ["create", "apply"]


async def test_an_object_that_was_deleted_is_a_repair(counted: Counted) -> None:
    await counted.apply()
    counted.store.forget(resources.CONFIG_MAPS, "rl", "rm-pins")
    assert await counted.apply()
    assert counted.repairs() == 1


async def test_an_object_that_was_edited_is_a_repair_also_after_a_restart(counted: Counted) -> None:
    await counted.apply()
    restarted: Known = {}
    assert not await counted.apply(known=restarted)
    counted.edit(data={"a": "2"})
    assert await counted.apply(known=restarted)
    assert counted.repairs() == 1


async def test_another_manifest_is_no_repair(counted: Counted) -> None:
    await counted.apply()
    assert await counted.apply({**MANIFEST, "data": {"a": "2"}})
    assert counted.repairs() is None


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="planted with our label"),
        pytest.param(
            [{"kind": "RewardPool", "name": "rm", "uid": "former", "controller": True}], id="of a former pool"
        ),
        pytest.param([{**OWNERS[0], "controller": False}], id="not as the controller"),
        pytest.param(
            [OWNERS[0] | {"controller": False}, {"kind": "Job", "uid": "a", "controller": True}], id="of a Job"
        ),
    ],
)
async def test_what_the_pool_does_not_control_is_left_alone_whatever_its_name_and_label(
    monkeypatch: pytest.MonkeyPatch, owners: list[Object]
) -> None:
    metadata = {**METADATA, "uid": "other", "ownerReferences": owners}
    counted = Counted(monkeypatch, FakeKube(foreign={"metadata": metadata}))
    with pytest.raises(NotOursError, match="ConfigMap rm-pins"):
        await counted.apply()
    assert counted.kube.writes == []
