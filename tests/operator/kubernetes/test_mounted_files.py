"""The ConfigMaps of mounted files, of all pools of a namespace together. The API server is a fake."""

import asyncio

import pytest
from support.kube_builders import a_pod
from support.pool_surroundings import FakeKube

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.cache.store import OF_ALL_POOLS, Key, Store
from rewardpool_operator.kubernetes.ensure import NotOursError
from rewardpool_operator.kubernetes.mounted_files import KEEP_SECONDS, MountedFiles

MANIFEST = render.files_config_map("rl", {"a.py": "cGFzcw=="})
NAME = MANIFEST["metadata"]["name"]


class Around:
    """A namespace with its files, an API server, and a clock."""

    def __init__(self) -> None:
        self.kube, self.store = FakeKube(), Store()
        self.now = 0.0
        self.woken: list[Key] = []
        self.files = MountedFiles(self.kube, self.store, gone=self.woken.extend, clock=lambda: self.now)  # type: ignore[arg-type]

    def put(self, **changed: object) -> None:
        """Such a ConfigMap is there, and the watch told of it."""
        self.store.put(resources.CONFIG_MAPS, self.kube.keep(resources.CONFIG_MAPS, {**MANIFEST, **changed}))

    def there(self) -> bool:
        return (resources.CONFIG_MAPS, NAME) in self.kube.objects

    async def after(self, seconds: float) -> bool:
        """Whether the files are there after that time, with a look for unused ones at its beginning and its end."""
        await self.files.remove_unused()
        self.now += seconds
        await self.files.remove_unused()
        return self.there()


@pytest.fixture
def around() -> Around:
    return Around()


def a_mounting_pod(pool: str = "rm") -> Object:
    pod = a_pod()
    pod["metadata"] |= {"namespace": "rl", "resourceVersion": "1"}
    pod["metadata"]["labels"][names.LABEL_POOL] = pool
    pod["spec"]["volumes"] = [{"name": "files", "configMap": {"name": NAME}}]
    return pod


async def test_all_pools_of_a_namespace_have_them_made_once(around: Around) -> None:
    await asyncio.gather(*(around.files.ensure(MANIFEST) for _ in range(20)))
    assert around.kube.writes == ["create ConfigMap"]


def test_other_files_have_another_name() -> None:
    assert render.files_config_map("rl", {"a.py": "cGFzcyA="})["metadata"]["name"] != NAME


async def test_what_is_there_without_our_labels_gets_them(around: Around) -> None:
    around.kube.keep(resources.CONFIG_MAPS, {**MANIFEST, "metadata": {"name": NAME, "namespace": "rl"}})
    await around.files.ensure(MANIFEST)
    assert around.kube.writes == ["create ConfigMap", "merge configmaps"]
    assert around.store.files("rl")


@pytest.mark.parametrize(
    "changed", [{"binaryData": {"a.py": "ZXZpbA=="}}, {"immutable": False}, {"data": {"sitecustomize.py": ""}}]
)
@pytest.mark.parametrize("is_known", [True, False])
async def test_what_does_not_have_the_content_of_its_name_is_neither_mounted_nor_changed(
    around: Around, changed: Object, is_known: bool
) -> None:
    if is_known:
        around.put(**changed)
    else:
        around.kube.keep(resources.CONFIG_MAPS, {**MANIFEST, **changed})
    with pytest.raises(NotOursError, match="delete it"):
        await around.files.ensure(MANIFEST)
    assert "merge configmaps" not in around.kube.writes


async def test_files_that_were_deleted_are_news_for_all_pools_and_come_back(around: Around) -> None:
    await around.files.ensure(MANIFEST)
    deleted = around.kube.objects.pop((resources.CONFIG_MAPS, NAME))
    assert around.store.remove(resources.CONFIG_MAPS, deleted) == [("rl", OF_ALL_POOLS)]
    await around.files.ensure(MANIFEST)
    assert around.there()


async def test_files_that_nothing_needs_any_more_are_deleted(around: Around) -> None:
    around.put()
    assert await around.after(KEEP_SECONDS - 1)
    assert not await around.after(1)


async def test_files_that_a_pool_wants_stay(around: Around) -> None:
    around.put()
    await around.files.remove_unused()
    around.now = KEEP_SECONDS - 1
    await around.files.ensure(MANIFEST)
    assert await around.after(KEEP_SECONDS - 1)


@pytest.mark.parametrize("pool", ["rm", "gone"])
async def test_files_that_a_pod_mounts_stay_also_when_its_pool_is_gone(around: Around, pool: str) -> None:
    around.put()
    around.store.put(resources.PODS, a_mounting_pod(pool))
    assert await around.after(2 * KEEP_SECONDS)
    around.store.remove(resources.PODS, a_mounting_pod(pool))
    assert not await around.after(KEEP_SECONDS)


async def test_files_that_a_deployment_mounts_stay(around: Around) -> None:
    around.put()
    template = {"spec": {"volumes": [{"name": "files", "configMap": {"name": NAME}}]}}
    metadata = {"name": "d", "namespace": "rl", "resourceVersion": "1", "labels": {names.LABEL_POOL: "rm"}}
    around.store.put(resources.DEPLOYMENTS, {"metadata": metadata, "spec": {"template": template}})
    assert await around.after(2 * KEEP_SECONDS)


async def test_a_pool_that_comes_while_they_are_deleted_waits_and_makes_them_again(around: Around) -> None:
    around.put()
    await around.files.remove_unused()
    around.now = KEEP_SECONDS
    # The first await of the deletion is the call itself.
    removing = asyncio.ensure_future(around.files.remove_unused())
    await asyncio.sleep(0)
    await asyncio.gather(removing, around.files.ensure(MANIFEST))
    assert around.there()
    assert around.kube.writes == ["delete configmaps", "create ConfigMap"]


async def test_nothing_is_deleted_in_a_namespace_that_is_not_known() -> None:
    around = Around()
    around.files = MountedFiles(around.kube, around.store, is_known=lambda _: False, clock=lambda: around.now)  # type: ignore[arg-type]
    around.put()
    assert await around.after(2 * KEEP_SECONDS)
