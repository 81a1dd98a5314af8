"""SandboxClaims of a worker Deployment: as many as it declares, see `workload/sandboxes.py`."""

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import SANDBOX_CLAIMS, SANDBOX_TEMPLATES, SANDBOX_WARM_POOLS, Object, Resource
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.owned import is_ours
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.ensure import NotOursError
from rewardpool_operator.kubernetes.workload import sandboxes

AT_ONCE: Final = 50


async def reconcile(kube: Kube, store: Store, deployment: Object, objects: Objects, *, stop: Collection[str]) -> bool:
    """Make and delete claims; return whether something is to be done by the next pass too.

    Raises:
        KubeError: the API server refuses a write.
        NotOursError: a SandboxTemplate or SandboxWarmPool of that name has another owner.
    """
    claims = objects.claims_of(deployment)
    replicas = deployment["spec"].get("replicas", 1)
    todo = sandboxes.changes(claims, objects.pods, replicas=replicas, stop=stop, now=datetime.now(UTC))
    namespace = deployment["metadata"]["namespace"]
    for name in todo.delete:
        ending = await kube.delete(SANDBOX_CLAIMS, namespace, name)
        if ending is None:
            store.forget(SANDBOX_CLAIMS, namespace, name)
        else:
            store.put(SANDBOX_CLAIMS, ending)
    if todo.make:
        await _make_once(kube, SANDBOX_TEMPLATES, sandboxes.template(deployment))
        await _make_once(kube, SANDBOX_WARM_POOLS, sandboxes.warm_pool(deployment))
        manifest = sandboxes.claim(deployment)
        asked = [kube.create(SANDBOX_CLAIMS, manifest) for _ in range(min(todo.make, AT_ONCE))]
        made = await asyncio.gather(*asked, return_exceptions=True)
        for one in made:
            if not isinstance(one, BaseException):
                store.put(SANDBOX_CLAIMS, one)
        for one in made:
            if isinstance(one, BaseException):
                raise one
    return bool(todo.delete or todo.make or todo.waits)


async def _make_once(kube: Kube, resource: Resource, manifest: Object) -> None:
    """Make what is not there; the size of a warm pool that is there is whoever's who changed it."""
    metadata = manifest["metadata"]
    try:
        await kube.create(resource, manifest)
    except KubeError as error:
        found = await kube.get(resource, metadata["namespace"], metadata["name"]) if error.is_conflict else None
        if found is None:
            raise
        if not is_ours(found, metadata["ownerReferences"][0]["uid"]):
            where = f"{manifest['kind']} {metadata['name']} is there, and this pool's Deployment does not control it"
            raise NotOursError(f"{where}, so no sandbox is claimed: delete it, or name the pool otherwise") from None
