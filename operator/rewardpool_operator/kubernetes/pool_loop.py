"""One pool, kept as declared: observe, decide, apply; then wait for the next event or tick.

Level-triggered: an event only says "look again". Passes of one pool never overlap. The objects are read again after an
event, after a write of ours, and every few seconds in any case, so a watch that died silently costs seconds.
"""

import asyncio
import contextlib
import logging
import random
from time import monotonic
from typing import Final

import aiohttp
from pydantic import ValidationError

from rewardpool_api import RewardPool
from rewardpool_operator.decide import decide
from rewardpool_operator.kubernetes import apply, render
from rewardpool_operator.kubernetes.apply import Apply, Written
from rewardpool_operator.kubernetes.client import Kube, KubeError, KubeUnreachableError, Object
from rewardpool_operator.kubernetes.keys import settled_keys
from rewardpool_operator.kubernetes.observe import Objects, Observer, read_objects
from rewardpool_operator.kubernetes.render import Keys

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.5
"""Between passes without events: how long a router that lost its list is without workers."""
QUIET_SECONDS: Final = 0.2
"""Between passes at least, however many events come."""
REFRESH_SECONDS: Final = 4.0
"""Age at which the objects are read again without an event. Secrets, which are not watched, are noticed by this."""
LONGEST_BACKOFF_SECONDS: Final = 5.0
"""Between passes that fail, so that all is as declared soon after the API server is back."""


class PoolLoop:
    """Runs until the pool is gone, or until cancelled."""

    def __init__(self, kube: Kube, session: aiohttp.ClientSession, *, namespace: str, name: str, image: str) -> None:
        self.namespace = namespace
        self.name = name
        self.passed_at = monotonic()
        """Monotonic time of the end of the last pass, successful or not."""
        self._kube = kube
        self._observer = Observer(session)
        self._image = image
        self._woken = asyncio.Event()
        self._objects: Objects | None = None
        self._read_at = 0.0
        self._keys: Keys | None = None
        self._written = Written()
        self._invalid: str | None = None

    def wake(self) -> None:
        """Something changed: read the objects again, now."""
        self._woken.set()

    def knows(self, pool: Object) -> bool:
        """Whether this version of the pool is the one already looked at: an echo of our own write."""
        seen = self._objects.pool["metadata"]["resourceVersion"] if self._objects else None
        return bool(seen == pool["metadata"]["resourceVersion"])

    async def run(self) -> None:
        """Keep the pool as declared for as long as it is there, or until cancelled."""
        failed = 0
        try:
            while True:
                try:
                    failed = 0 if await self.one_pass() else failed + 1
                    if self._objects is None:
                        return
                except KubeUnreachableError as error:
                    # No longer pauses: meanwhile the routers are kept right.
                    failed = 1
                    self._read_at = 0.0
                    log.warning("%s/%s: %s", self.namespace, self.name, error)
                except KubeError as error:
                    failed += 1
                    log.warning("%s/%s: %s", self.namespace, self.name, error)
                except Exception:
                    # A defect in one pass over one pool must not end the care for it; the log has all of it.
                    failed += 1
                    log.exception("%s/%s: a pass failed", self.namespace, self.name)
                self.passed_at = monotonic()
                await self._wait(failed)
        finally:
            self._observer.close()

    async def one_pass(self) -> bool:
        """Observe, decide and apply once; whether nothing of it was refused.

        Raises:
            KubeError: the API server refused to be read.
            KubeUnreachableError: it does not answer; the routers were seen to nevertheless.
        """
        away = await self._read()
        if self._objects is None or "deletionTimestamp" in self._objects.pool["metadata"]:
            # Owner references take everything away; writing now would only make it anew.
            return True
        pool = self._parsed(self._objects)
        if pool is None:
            return True
        self._keys = settled_keys(self._objects.key_secret, self._objects.admin_secret, self._keys)
        wanted = apply.rendered(pool, self._keys, image=self._image)
        revision = render.revision_of(wanted.worker_template)
        snapshot = await self._observer.snapshot(pool, self._objects, keys=self._keys, revision=revision)
        plan = decide(snapshot)
        carrying = Apply(
            self._kube, pool, self._objects, written=self._written, router_admin=self._observer.router_admin
        )
        if away is not None:
            await carrying.routers_only(plan)
            raise away
        try:
            await carrying.all_of(plan, wanted)
        finally:
            self._objects = Objects(**{**vars(self._objects), "pool": carrying.pool_object})
            if carrying.changed:
                self._read_at = 0.0
                self._woken.set()
        return not carrying.failures

    async def _read(self) -> KubeUnreachableError | None:
        """Read the objects if they may have changed.

        An API server that is away is returned, not raised, when older objects are there to go on with.
        """
        if not self._woken.is_set() and monotonic() - self._read_at < REFRESH_SECONDS:
            return None
        self._woken.clear()
        try:
            self._objects = await read_objects(self._kube, self.namespace, self.name)
            self._read_at = monotonic()
        except KubeUnreachableError as error:
            if self._objects is None:
                raise
            return error
        return None

    def _parsed(self, objects: Objects) -> RewardPool | None:
        """The pool as its model; one that an older CRD let through is told once and left alone."""
        try:
            return RewardPool.model_validate(objects.pool)
        except ValidationError as error:
            version = objects.pool["metadata"]["resourceVersion"]
            if self._invalid != version:
                log.warning("%s/%s is left alone, it is no valid pool: %s", self.namespace, self.name, error)
            self._invalid = version
            return None

    async def _wait(self, failed: int) -> None:
        if failed:
            backoff = min(LONGEST_BACKOFF_SECONDS, 0.5 * 2 ** min(failed, 8))
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, hides nothing
            return
        # A hundred pods that start together are some passes, not some hundred.
        await asyncio.sleep(QUIET_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), timeout=TICK_SECONDS)
