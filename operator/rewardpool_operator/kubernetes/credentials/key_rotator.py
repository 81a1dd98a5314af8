"""The keys of one pool from pass to pass: what the Secrets say, the next step of a rotation, and how far it is.

The step itself is decided in `rotation.py`; here workers are asked whether they take the next key, and router pods are
looked at for the keys they were started with.
"""

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_api.status import MAX_REQUEST
from rewardpool_control.snapshot import Snapshot, Worker
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.credentials import rotation
from rewardpool_operator.kubernetes.credentials.keys import Keys, found_keys, gateway_key, new_key
from rewardpool_operator.kubernetes.credentials.rotation import RotationProgress, RotationStep
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_operator.probe import takes_key

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 1.0
# A kubelet renews mounted Secrets within this time by its defaults. A worker that was starting when the next key was
# made, and still does not answer after it, will find the key.
SYNC: Final = timedelta(seconds=120)


class KeyRotator:
    """The keys of one pool."""

    def __init__(self, polling: Polling) -> None:
        self._polling = polling
        self._keys: Keys | None = None
        self._step: RotationStep | None = None
        self._progress = RotationProgress()
        self._taken: set[tuple[str, str]] = set()
        """Container and key, of every worker that was seen to take the next key."""

    async def reconcile(self, pool: RewardPool, objects: Objects, *, may_change: bool, known: bool = True) -> Keys:
        """The keys that the Secrets shall have.

        Where not all Secrets are known, what stands for the missing ones is not remembered, and must not be written.
        """
        asked = (pool.metadata.annotations.get(names.ANNOTATION_ROTATE_KEY) or "")[:MAX_REQUEST] or None
        before, name = pool.status.auth.rotation, pool.metadata.name
        keys = found_keys(
            objects.find("Secret", names.key_secret(name)),
            objects.find("Secret", names.admin_secret(name)),
            self._keys,
            asked=asked,
            handled=before.request if before else None,
            uses_key=pool.spec.router.auth.uses_key,
        )
        if pool.spec.gateway is not None:
            secret = objects.find("Secret", names.gateway_name(name))
            keys = replace(keys, gateway=gateway_key(secret, self._keys))
        if may_change:
            now = datetime.now(UTC)
            self._progress = RotationProgress(
                refusing=await self._refusing(keys, objects, now), outdated=outdated_routers(pool, objects, keys)
            )
            self._step = rotation.next_step(keys, self._progress, asked=asked, now=now, new_key=new_key)
            keys = self._step.keys
        if known:
            self._keys = keys
        return keys

    def observed(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with how far the rotation is; before the first step, with what was said of it last."""
        before = snapshot.pool.status.auth.rotation
        if self._step is None:
            return replace(snapshot, rotation=before)
        after = rotation.progress_of(self._step.keys, self._progress, before, now=snapshot.now)
        return replace(snapshot, rotation=after, key_refused=self._step.refused)

    async def _refusing(self, keys: Keys, objects: Objects, now: datetime) -> tuple[str, ...]:
        if keys.next is None:
            self._taken.clear()
            return ()
        since = keys.step_since or now
        found = [(pod, pods.worker_of(pod)) for pod in objects.pods_of(names.COMPONENT_WORKER)]
        staying = [(pod, worker) for pod, worker in found if worker.active]
        takes = await asyncio.gather(*(self._takes(pod, worker, keys.next, since, now) for pod, worker in staying))
        return tuple(worker.name for (_, worker), taken in zip(staying, takes, strict=True) if not taken)

    async def _takes(self, pod: Object, worker: Worker, key: str, since: datetime, now: datetime) -> bool:
        if not worker.answering or worker.url is None:
            return worker.created > since or now - since > SYNC
        seen = pods.container_id(pod), key
        if seen in self._taken:
            return True
        try:
            async with self._polling.limit, asyncio.timeout(PATIENCE_SECONDS):
                taken = await takes_key(self._polling.session, worker.url, key=key)
        except TimeoutError:
            log.debug("%s does not say in time whether it takes the next key", worker.name)
            return False
        if taken:
            self._taken.add(seen)
        return taken


def outdated_routers(pool: RewardPool, objects: Objects, keys: Keys) -> tuple[str, ...]:
    """Routers that keep a change of keys from being over: with other keys, not ready, or not made yet."""
    found = objects.pods_of(names.COMPONENT_ROUTER)
    current = [pod for pod in found if pods.router_keys(pod) == keys.fingerprint and pods.is_ready(pod)]
    missing = objects.wanted_routers(pool) - len(current)
    behind = [pod["metadata"]["name"] for pod in found if pod not in current]
    return tuple(behind) or ((f"{missing} to be made",) if missing > 0 else ())
