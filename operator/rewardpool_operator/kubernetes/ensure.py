"""Writes of one owned object: made when it is missing, applied when it differs, left alone when it is as rendered.

Before one is made again that was there, the API server is asked whether the pool itself still exists: of a deleted pool
the watch of its objects may report the collection before the pools' own watch reports the deletion. What is made for a
new pool that is gone already is collected too, and writing its status, which is never created, shows that it is gone.

An object that was there as rendered and is not any more was deleted or edited: putting it back is a repair,
which is counted.
"""

from typing import Final

from rewardpool_api import RewardPool
from rewardpool_api.status import NEVER_OBSERVED
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.cache.owned import NOT_APPLIED, RESOURCES, controller_of, is_ours
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.credentials.secret_writer import change_secret, has_surplus
from rewardpool_operator.kubernetes.manifests.diff import ANNOTATION_MANIFEST, differs
from rewardpool_operator.kubernetes.manifests.managed_fields import own_as_applied
from rewardpool_operator.kubernetes.stored_pool import PoolGoneError, check_uid
from rewardpool_operator.metrics import METRICS
from rewardpool_runtime.untrusted import printable

Known = dict[tuple[str, str], tuple[str, str]]
"""Kind and name -> hash of the manifest that the object was found or made to be, and its version then."""


MAX_OWNER: Final = 200  # characters


class NotOursError(RuntimeError):
    """An object of a name that the pool needs is not the pool's: it may say anything, and be deleted with its owner."""


class Ensure:
    """The objects of one pool; what is `known` is kept from pass to pass."""

    def __init__(self, kube: Kube, store: Store, pool: RewardPool, *, known: Known) -> None:
        self._kube = kube
        self._store = store
        self._pool = pool
        self._known = known
        self._is_new = pool.status.observed_generation == NEVER_OBSERVED and not known
        self._is_there = False

    async def apply(self, manifest: Object) -> bool:
        """Make or apply the stamped manifest, unless the live object is what it says; whether anything was written.

        Raises:
            NotOursError: an object of that name has another owner.
            PoolGoneError: the object is missing because the pool is.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        resource, namespace = RESOURCES[kind], self._pool.metadata.namespace
        check_uid(self._store.pool((namespace, self._pool.metadata.name)), self._pool.metadata.uid)
        live = self._store.find(resource, namespace, name)
        self._check_owner(kind, name, live)
        before = self._known.get((kind, name))
        digest = manifest["metadata"]["annotations"][ANNOTATION_MANIFEST]
        surplus = kind == "Secret" and live is not None and has_surplus(manifest, live)
        if live is not None and not surplus and not needs_apply(manifest, live, before):
            self._known[kind, name] = (digest, version_of(live))
            return False
        if before is not None and before[0] == digest:
            METRICS.object_repaired(kind)
        if live is None:
            await self._check_pool()
            written = await self._created(resource, manifest)
        else:
            written = await self._changed(resource, manifest, live)
        self._store.put(resource, written)
        made = self._store.find(resource, namespace, name)
        if made is not None:
            self._known[kind, name] = (digest, version_of(made))
        return True

    async def _check_pool(self) -> None:
        """Ask once whether the pool is there still, if it was before: what is missing may have gone with it."""
        if self._is_new or self._is_there:
            return
        namespace, name = self._pool.metadata.namespace, self._pool.metadata.name
        pool = await self._kube.get(resources.POOLS, namespace, name)
        if pool is None or pool["metadata"]["uid"] != self._pool.metadata.uid:
            raise PoolGoneError(f"{namespace}/{name} is gone")
        self._is_there = True

    async def _created(self, resource: Resource, manifest: Object) -> Object:
        # Made without a look: only an object that is there and not in the store, lacking our label, is looked at.
        try:
            return await self._kube.create(resource, manifest)
        except KubeError as error:
            metadata = manifest["metadata"]
            found = None
            if error.is_conflict:
                found = await self._kube.get(resource, metadata["namespace"], metadata["name"])
            if found is None:
                raise
        self._check_owner(manifest["kind"], metadata["name"], found)
        if resource == resources.SECRETS:
            # It may have other keys than those that were made up for it: the next pass goes by what is there.
            return found
        return await self._kube.apply(resource, manifest)

    async def _changed(self, resource: Resource, manifest: Object, live: Object) -> Object:
        if resource == resources.SECRETS:
            return await change_secret(self._kube, manifest, live)
        if NOT_APPLIED in live:
            await own_as_applied(self._kube, resource, live["metadata"]["namespace"], live["metadata"]["name"])
        return await self._kube.apply(resource, manifest)

    def _check_owner(self, kind: str, name: str, there: Object | None) -> None:
        if there is None or is_ours(there, self._pool.metadata.uid):
            return
        owner = controller_of(there)
        whose = f"{owner.get('kind')} {owner.get('name')} ({owner.get('uid')})" if owner else "nothing"
        where = f"{kind} {name} is there, controlled by {printable(whose, most=MAX_OWNER)} and not by this pool"
        raise NotOursError(f"{where}, so nothing is deployed: delete it, or name the pool otherwise")


def needs_apply(manifest: Object, live: Object, before: tuple[str, str] | None) -> bool:
    """Return whether applying the manifest would change the object; `before` are hash and version of the last apply."""
    if not differs(manifest, live):
        return False
    digest = manifest["metadata"]["annotations"][ANNOTATION_MANIFEST]
    # The API server writes some values in its own way ("1000m" of CPU as "1"): a difference that was there right after
    # the same manifest was applied does not count.
    return before != (digest, version_of(live)) or differs({"metadata": manifest["metadata"]}, live)


def version_of(live: Object) -> str:
    """Changes when somebody changes what the object is asked to be; without a generation, when anything changes."""
    metadata = live["metadata"]
    return f"{metadata['uid']}/{metadata.get('generation') or metadata['resourceVersion']}"
