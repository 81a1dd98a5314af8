"""One owned object brought about: applied when it is missing or differs, left alone when it is as rendered.

Before a missing one is made, the API server is asked whether the pool itself is there still. When kopf lists again it
reports no deletion that its broken watch missed; but what the pool owned is collected, and we watch that.

An object that was there as rendered and is not any more was deleted or edited by somebody: putting it back is a repair,
which is counted.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_operator.kubernetes import client
from rewardpool_operator.kubernetes.cache.owned import RESOURCES
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.client import Kube, Object
from rewardpool_operator.kubernetes.credentials.secret_writer import has_surplus, write_secret
from rewardpool_operator.kubernetes.diff import ANNOTATION_MANIFEST, differs, stamped
from rewardpool_operator.kubernetes.stored_pool import PoolGoneError
from rewardpool_operator.metrics import METRICS

Known = dict[tuple[str, str], tuple[str, str]]
"""Kind and name -> hash of the manifest that the object was found or made to be, and its version then."""

_WHERE: Final = "{kind} {name} is there and is not this pool's: delete it, or name the pool otherwise"


class NotOursError(RuntimeError):
    """An object of the name we need belongs to somebody else; taking it would delete it with the pool."""


class Ensure:
    """The objects of one pool.

    Args:
        kube: the API server.
        store: what is there; takes the answers.
        pool: whose objects.
        known: kept from pass to pass.
    """

    def __init__(self, kube: Kube, store: Store, pool: RewardPool, *, known: Known) -> None:
        self._kube = kube
        self._store = store
        self._pool = pool
        self._known = known
        self._unlabelled: dict[tuple[str, str], Object | None] = {}

    async def look_for(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Ask for those objects (kind and name) that are not in the store, at once instead of one by one.

        Raises:
            PoolGoneError: they are missing because the pool is.
            KubeError: the API server refuses.
            KubeUnreachableError: it does not answer.
        """
        namespace = self._pool.metadata.namespace
        missing = [(kind, name) for kind, name in wanted if self._store.find(RESOURCES[kind], namespace, name) is None]
        if not missing:
            return
        pool, *found = await asyncio.gather(
            self._kube.get(client.POOLS, namespace, self._pool.metadata.name),
            *(self._kube.get(RESOURCES[kind], namespace, name) for kind, name in missing),
        )
        if pool is None or pool["metadata"]["uid"] != self._pool.metadata.uid:
            raise PoolGoneError(f"{namespace}/{self._pool.metadata.name} is gone")
        self._unlabelled |= dict(zip(missing, found, strict=True))

    async def bring_about(self, manifest: Object) -> bool:
        """Apply the manifest, unless the live object is what it says; whether anything was written.

        Raises:
            NotOursError: an object of that name belongs to somebody else.
            PoolGoneError: the object is missing because the pool is.
            KubeError: the API server refuses.
            KubeUnreachableError: it does not answer.
        """
        manifest = stamped(manifest)
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        resource, namespace = RESOURCES[kind], self._pool.metadata.namespace
        live = self._store.find(resource, namespace, name)
        await self._check_owner(kind, name, live)
        before = self._known.get((kind, name))
        digest = manifest["metadata"]["annotations"][ANNOTATION_MANIFEST]
        surplus = kind == "Secret" and live is not None and has_surplus(manifest, live)
        if live is not None and not surplus and not needs_apply(manifest, live, before):
            self._known[kind, name] = (digest, version_of(live))
            return False
        if before is not None and before[0] == digest:
            METRICS.object_repaired(kind)
        if kind == "Secret":
            self._store.put(resource, await write_secret(self._kube, manifest, live))
        else:
            self._store.put(resource, await self._kube.apply(resource, manifest))
        made = self._store.find(resource, namespace, name)
        if made is not None:
            self._known[kind, name] = (digest, version_of(made))
        return True

    async def _check_owner(self, kind: str, name: str, live: Object | None) -> None:
        there = live
        if there is None:
            # An object without our label is not in the store.
            if (kind, name) not in self._unlabelled:
                await self.look_for([(kind, name)])
            there = self._unlabelled.get((kind, name))
        if there is not None and not is_ours(there, self._pool):
            raise NotOursError(_WHERE.format(kind=kind, name=name))


def is_ours(live: Object, pool: RewardPool) -> bool:
    """Whether the object belongs to the pool, by its label or by its owner."""
    metadata = live["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", [])}
    return metadata.get("labels", {}).get(names.LABEL_POOL) == pool.metadata.name or pool.metadata.uid in owners


def needs_apply(manifest: Object, live: Object, before: tuple[str, str] | None) -> bool:
    """Whether applying the stamped manifest would change the live object.

    The API server writes some values in its own way ("1000m" of CPU as "1"), and then the object differs from the
    manifest for ever. So a difference that was there right after the same manifest was applied is none.

    Args:
        manifest: as it would be applied.
        live: the object.
        before: hash and version that the last apply left; None when there was none.
    """
    if not differs(manifest, live):
        return False
    digest = manifest["metadata"]["annotations"][ANNOTATION_MANIFEST]
    return before != (digest, version_of(live)) or differs({"metadata": manifest["metadata"]}, live)


def version_of(live: Object) -> str:
    """Changes when somebody changes what the object is asked to be; without a generation, when anything changes."""
    metadata = live["metadata"]
    return f"{metadata['uid']}/{metadata.get('generation') or metadata['resourceVersion']}"
