"""All pools and what they own, in memory: what watches said, and what the API server answered to our own writes.

Pure: no clock, no client. Whoever puts something in gets back which pools have news by that.

Versions go forward only: the answer to a write of ours is put in at once, so the next pass sees it, and the watch's
later word of the same version is no news. (Versions of one kind are compared as numbers, as Kubernetes' own caches do.)
The exception is an etcd that was restored from a backup, whose versions begin below those we know: then a list is taken
as it is.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rewardpool_api import names
from rewardpool_operator.kubernetes import client, pods
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.owned import RESOURCES, trimmed
from rewardpool_operator.kubernetes.client import Object, Resource

Key = tuple[str, str]
"""Namespace and name of a pool."""

REMEMBERED_DELETIONS: Final = 4096
"""How many deleted objects are remembered, for answers and events that come late."""

_Place = tuple[Resource, str, str]
"""Kind, namespace and name: there is one object at a time in a place."""


class Store:
    """Objects by pool."""

    def __init__(self) -> None:
        self._pools: dict[Key, dict[_Place, Object]] = {}
        self._keys: dict[_Place, Key] = {}
        self._deleted: OrderedDict[_Place, int] = OrderedDict()

    def pools(self) -> list[Key]:
        """All pools that there are."""
        return [key for key in self._pools if self.pool(key) is not None]

    def pool(self, key: Key) -> Object | None:
        """The pool object itself."""
        return self._pools.get(key, {}).get((client.POOLS, *key))

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object in that place."""
        place = (resource, namespace, name)
        return self._pools[self._keys[place]][place] if place in self._keys else None

    def objects(self, key: Key) -> Objects | None:
        """The pool and what it owns at this moment; None when there is no such pool."""
        pool = self.pool(key)
        if pool is None:
            return None
        found: dict[str, list[Object]] = {kind: [] for kind in RESOURCES}
        for (resource, _, _), item in self._pools[key].items():
            if resource != client.POOLS:
                found[_KINDS[resource]].append(item)
        return Objects(
            pool=pool,
            deployments=tuple(found.pop("Deployment")),
            pods=tuple(pod for pod in found.pop("Pod") if pods.is_managed(pod) and not pods.is_over(pod)),
            services=tuple(found.pop("Service")),
            config_maps=tuple(found.pop("ConfigMap")),
            secrets=tuple(found.pop("Secret")),
            leases=tuple(found.pop("Lease")),
            others={kind: tuple(items) for kind, items in found.items()},
        )

    def strays(self, resource: Resource) -> Mapping[Key, tuple[Object, ...]]:
        """Objects of that kind whose pool is not there, by the pool that they name."""
        found = {
            key: tuple(item for place, item in objects.items() if place[0] == resource)
            for key, objects in self._pools.items()
            if (client.POOLS, *key) not in objects
        }
        return {key: items for key, items in found.items() if items}

    def put(self, resource: Resource, found: Object, *, restored: bool = False) -> list[Key]:
        """Take in an object, unless as new a version is known already.

        Args:
            resource: its kind.
            found: the object.
            restored: whether what is known is of before a backup was restored, so that its version means nothing.
        """
        place, version = _place(resource, found), _version(found)
        known = self.find(*place)
        newest = max(self._deleted.get(place, -1), _version(known) if known else -1)
        if restored:
            self._deleted.pop(place, None)
        elif version <= newest:
            return []
        before, key = self._keys.get(place), _key(resource, found)
        if key is None:
            return self._drop(place)
        found = trimmed(resource, found)
        if known is not None and before == key and _same(known, found):
            known["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            return []
        # An object whose label was changed is news for both pools.
        news = self._drop(place) if before != key else []
        self._keys[place] = key
        self._pools.setdefault(key, {})[place] = found
        return [*news, key]

    def remove(self, resource: Resource, found: Object) -> list[Key]:
        """The object is gone, or lost its label, in this version."""
        place, version = _place(resource, found), _version(found)
        known = self.find(*place)
        if known is not None and _version(known) > version:
            return []
        return self._bury(place, version)

    def forget(self, resource: Resource, namespace: str, name: str) -> list[Key]:
        """There is no such object, as the API server just said."""
        known = self.find(resource, namespace, name)
        return self._bury((resource, namespace, name), _version(known)) if known is not None else []

    def keep_only(
        self, resource: Resource, namespace: str, listed: Iterable[str], *, version: str, restored: bool = False
    ) -> list[Key]:
        """Drop what a list did not have: what a broken watch did not report.

        Args:
            resource: which kind was listed.
            namespace: in which namespace; "" for all.
            listed: `namespace/name` of what is there.
            version: of the list; what is newer than it was made since.
            restored: as for `put`; what was deleted before that is forgotten.
        """
        there = set(listed)
        gone = [
            place
            for place in self._places(resource, namespace)
            if f"{place[1]}/{place[2]}" not in there
            and (restored or _version(self._pools[self._keys[place]][place]) <= int(version))
        ]
        if restored:
            for place in [place for place in self._deleted if place[0] == resource and namespace in ("", place[1])]:
                del self._deleted[place]
        return [key for place in gone for key in self._bury(place, int(version))]

    def _places(self, resource: Resource, namespace: str) -> Iterator[_Place]:
        return (place for place in self._keys if place[0] == resource and namespace in ("", place[1]))

    def _bury(self, place: _Place, version: int) -> list[Key]:
        self._deleted[place] = max(version, self._deleted.pop(place, -1))
        while len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        return self._drop(place)

    def _drop(self, place: _Place) -> list[Key]:
        key = self._keys.pop(place, None)
        if key is None:
            return []
        del self._pools[key][place]
        if not self._pools[key]:
            del self._pools[key]
        return [key]


_KINDS: Final = {resource: kind for kind, resource in RESOURCES.items()}


def _place(resource: Resource, found: Object) -> _Place:
    return resource, found["metadata"]["namespace"], found["metadata"]["name"]


def _key(resource: Resource, found: Object) -> Key | None:
    metadata = found["metadata"]
    pool = metadata["name"] if resource == client.POOLS else (metadata.get("labels") or {}).get(names.LABEL_POOL)
    return (metadata["namespace"], pool) if pool else None


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])


def _same(known: Object, found: Object) -> bool:
    """Whether nothing but the version differs: what changed is not among the things we keep."""
    version = known["metadata"]["resourceVersion"]
    return known == {**found, "metadata": {**found["metadata"], "resourceVersion": version}}
