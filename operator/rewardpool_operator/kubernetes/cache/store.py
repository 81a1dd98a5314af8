"""All pools and what they own, in memory: what watches said, and what the API server answered to our own writes.

Pure: no clock, no client. Putting an object in returns the pools that have news by it.

Versions go forward only: the answer to a write of ours is put in at once, so the next pass sees it, and the watch's
later word of the same version is no news. (Versions of one kind are compared as numbers, as Kubernetes' own caches do.)
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.cache.alike import kept_once
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.owned import (
    READ_BY_NAME,
    RESOURCES,
    controller_of,
    is_files,
    is_ours,
    trimmed,
)
from rewardpool_operator.kubernetes.workload import pods

Key = tuple[str, str]

OF_ALL_POOLS: Final = ""
"""Stands in a key in place of a pool's name: what all pools of the namespace share."""

REMEMBERED_DELETIONS: Final = 4096

ObjectRef = tuple[Resource, str, str]
"""Kind, namespace and name: there is one object of it at a time."""


class Store:
    """Objects by pool."""

    def __init__(self) -> None:
        self._pools: dict[Key, dict[ObjectRef, Object]] = {}
        self._keys: dict[ObjectRef, Key] = {}
        self._deleted: OrderedDict[ObjectRef, int] = OrderedDict()

    def pools(self) -> list[Key]:
        return [key for key in self._pools if self.pool(key) is not None]

    def pool(self, key: Key) -> Object | None:
        return self._pools.get(key, {}).get((resources.POOLS, *key))

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        ref = (resource, namespace, name)
        return self._pools[self._keys[ref]][ref] if ref in self._keys else None

    def objects(self, key: Key) -> Objects | None:
        """The pool, and what it owns and controls, at this moment; None when there is no such pool."""
        pool = self.pool(key)
        if pool is None:
            return None
        found: dict[str, list[Object]] = {kind: [] for kind in RESOURCES}
        for (resource, _, _), item in self._pools[key].items():
            if resource in _OF_OTHERS or (resource != resources.POOLS and is_ours(item, pool["metadata"].get("uid"))):
                found[_KINDS[resource]].append(item)
        deployments = found.pop("Deployment")
        makers = {deployment["metadata"].get("uid") for deployment in deployments}
        claims = [one for one in found.pop("SandboxClaim") if controller_of(one).get("uid") in makers]
        # One that is kept warm for the next claim has the labels of those that are claimed.
        sandboxes = {None, *(one["status"]["sandbox"].get("name") for one in claims)}
        there = (pod for pod in found.pop("Pod") if pods.is_managed(pod) and not pods.is_over(pod))
        return Objects(
            pool=pool,
            deployments=tuple(deployments),
            pods=tuple(pod for pod in there if pods.sandbox_of(pod) in sandboxes),
            claims=tuple(claims),
            services=tuple(found.pop("Service")),
            config_maps=tuple(found.pop("ConfigMap")),
            secrets=tuple(found.pop("Secret")),
            files=frozenset(item["metadata"]["name"] for item in self.files(key[0])),
            leases=tuple(found.pop("Lease")),
            others={kind: tuple(items) for kind, items in found.items()},
        )

    def files(self, namespace: str) -> list[Object]:
        return list(self._pools.get((namespace, OF_ALL_POOLS), {}).values())

    def namespaces_with_files(self) -> list[str]:
        return [namespace for namespace, name in self._pools if name == OF_ALL_POOLS]

    def mounting(self, namespace: str) -> Iterator[Object]:
        """Return what may mount them in the namespace: pods, also those of pools that are gone, and Deployments."""
        return (
            item
            for key, items in self._pools.items()
            if key[0] == namespace
            for ref, item in items.items()
            if ref[0] in (resources.PODS, resources.DEPLOYMENTS)
        )

    def strays(self, resource: Resource) -> Mapping[Key, tuple[Object, ...]]:
        """Objects of that kind whose pool is not there, by the pool that they name."""
        found = {
            key: tuple(item for ref, item in objects.items() if ref[0] == resource)
            for key, objects in self._pools.items()
            if (resources.POOLS, *key) not in objects
        }
        return {key: items for key, items in found.items() if items}

    def put(self, resource: Resource, found: Object) -> list[Key]:
        """Store an object, unless as new a version is known already."""
        ref, version = _ref(resource, found), _version(found)
        known = self.find(*ref)
        newest = max(self._deleted.get(ref, -1), _version(known) if known else -1)
        if version <= newest:
            return []
        before, key = self._keys.get(ref), _key(resource, found)
        if key is None:
            return self._drop(ref)
        found = trimmed(resource, found)
        if known is not None and before == key and _same(known, found):
            known["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            return []
        # An object whose label was changed is news for both pools.
        news = self._drop(ref) if before != key else []
        self._keys[ref] = key
        self._pools.setdefault(key, {})[ref] = _kept(found, known)
        # Files that come are no news: whoever needs them has made them. Files that go are, for all pools.
        return news if key[1] == OF_ALL_POOLS else [*news, key]

    def remove(self, resource: Resource, found: Object) -> list[Key]:
        """Remove the object, which is gone, or lost its label, in this version."""
        ref, version = _ref(resource, found), _version(found)
        known = self.find(*ref)
        if known is not None and _version(known) > version:
            return []
        return self._bury(ref, version)

    def forget(self, resource: Resource, namespace: str, name: str) -> list[Key]:
        """Remove an object that the API server does not have."""
        known = self.find(resource, namespace, name)
        return self._bury((resource, namespace, name), _version(known)) if known is not None else []

    def keep_only(self, resource: Resource, namespace: str, listed: Iterable[str], *, version: str) -> list[Key]:
        """Drop what a list of `namespace/name` in this version did not have, which a broken watch did not report."""
        there = set(listed)
        gone = [
            ref
            for ref in self._keys
            if ref[0] == resource
            and namespace in ("", ref[1])
            and f"{ref[1]}/{ref[2]}" not in there
            and _version(self._pools[self._keys[ref]][ref]) <= int(version)
        ]
        return [key for ref in gone for key in self._bury(ref, int(version))]

    def _bury(self, ref: ObjectRef, version: int) -> list[Key]:
        self._deleted[ref] = max(version, self._deleted.pop(ref, -1))
        while len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        if ref[0] == resources.POOLS:
            # No watch tells of their end, and a deleted pool's keys are nobody's to know.
            for other in [one for one in self._pools.get(ref[1:], ()) if one[0] in READ_BY_NAME.values()]:
                self._drop(other)
        return self._drop(ref)

    def _drop(self, ref: ObjectRef) -> list[Key]:
        key = self._keys.pop(ref, None)
        if key is None:
            return []
        del self._pools[key][ref]
        if not self._pools[key]:
            del self._pools[key]
        return [key]


_OF_OTHERS: Final = frozenset({resources.PODS, resources.LEASES, resources.SANDBOX_CLAIMS})
_KINDS: Final = {resource: kind for kind, resource in RESOURCES.items()}


def _ref(resource: Resource, found: Object) -> ObjectRef:
    return resource, found["metadata"]["namespace"], found["metadata"]["name"]


def _key(resource: Resource, found: Object) -> Key | None:
    metadata = found["metadata"]
    if resource == resources.CONFIG_MAPS and is_files(found):
        return (metadata["namespace"], OF_ALL_POOLS)
    pool = metadata["name"] if resource == resources.POOLS else (metadata.get("labels") or {}).get(names.LABEL_POOL)
    return (metadata["namespace"], pool) if pool else None


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])


def _same(known: Object, found: Object) -> bool:
    """Return whether the version alone differs: the change is in fields that are not kept."""
    version = known["metadata"]["resourceVersion"]
    return known == {**found, "metadata": {**found["metadata"], "resourceVersion": version}}


def _kept(found: Object, known: Object | None) -> Object:
    """The object, sharing what its last version and others have too; its metadata are its own: `put` changes them."""
    before = known or {"metadata": {}}
    others = {name: value for name, value in found.items() if name != "metadata"}
    return {"metadata": _shared(found["metadata"], before["metadata"]), **_shared(others, before)}


def _shared(found: Object, before: Object) -> Object:
    """The entries as they were where they are the same: of a pod that starts nothing but the status changes."""
    return {
        name: before[name] if name in before and before[name] == value else kept_once(value)
        for name, value in found.items()
    }
