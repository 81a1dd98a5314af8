"""A fake API server for the tests of watching: it lists and watches by a script, and knows no writes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.answers import Page, WatchEvent
from rewardpool_kube.errors import KubeUnreachableError
from rewardpool_kube.resources import Object, Resource

NAMESPACE = "rl"


def an_object(name: str, *, version: int = 1, pool: str = "rm", **fields: Any) -> Object:
    """Any object of the pool `rm`."""
    metadata = {"namespace": NAMESPACE, "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    owners = [{"kind": names.KIND, "name": pool, "uid": f"uid-{pool}", "controller": True}]
    return {"metadata": {**metadata, "labels": {names.LABEL_POOL: pool}, "ownerReferences": owners}, **fields}


class ScriptedKube:
    """What it lists is in `objects`; a watch says what is put into `words`, and ends or fails with an exception."""

    def __init__(self) -> None:
        self.objects: dict[Resource, list[Object]] = {}
        self.version = 10
        self.away = False
        self.lists: list[Resource] = []
        self.watches: list[tuple[Resource, str]] = []
        self.spoken_of = resources.CONFIG_MAPS
        """The one kind of which a watch says something."""
        self.words: asyncio.Queue[WatchEvent | Exception | None] = asyncio.Queue()

    def is_away(self) -> bool:
        return self.away

    async def pages(self, resource: Resource, namespace: str, *, selector: str = "") -> AsyncIterator[Page]:
        self.lists.append(resource)
        if self.away:
            raise KubeUnreachableError("nobody there")
        found = self.objects.get(resource, [])
        for start in range(0, max(1, len(found)), 2):
            yield Page(items=found[start : start + 2], version=str(self.version))

    async def watch(
        self, resource: Resource, namespace: str, *, version: str, seconds: int, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        self.watches.append((resource, version))
        while True:
            word = await (self.words.get() if resource == self.spoken_of else asyncio.Event().wait())
            if isinstance(word, Exception):
                raise word
            if not isinstance(word, WatchEvent):
                return
            yield word

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        if self.away:
            raise KubeUnreachableError("nobody there")
        return None
