"""One kind of object, kept in the store as the API server has it: list once, then watch, for ever.

What goes wrong with watches, and what is done about it:

    the connection ends or breaks      go on from the last version, after a short pause
    that version is too old (410)      list again
    something was deleted meanwhile    the list does not have it: it is dropped, and its pool reconciled
    a connection is open and dead      90 s without a word, not even a bookmark, end it; list again
    etcd was restored from a backup    versions begin anew below ours: nothing that is known counts, the operator ends
    one object makes no sense          it is left out and counted, the others are taken
    the CRD of pools was deleted       that is said in words; list again once it is back
    the API server is away             try again every few seconds; the store stays as it was

`seen_at` is when the API server last said anything; `alive_at` when this loop last did anything, in vain or not.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from rewardpool_api import names
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError, WatchSilentError
from rewardpool_kube.resources import PODS, POOLS, Object, Resource
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.queue.backoff import pause_seconds
from rewardpool_operator.kubernetes.workload.pods import is_on_its_way
from rewardpool_operator.left_out import leave_out
from rewardpool_operator.metrics import METRICS
from rewardpool_runtime.untrusted import NONSENSE, printable

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = (300, 600)  # spread, so that watches do not all begin anew at once
SHORTEST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 3.0
EXPIRED: Final = 410
NOT_FOUND: Final = 404
NO_CRD: Final = f"the CRD {names.PLURAL}.{names.GROUP} is not installed: kubectl apply --server-side -f it"
REFUSALS: Final = 3  # in a row, before they are reported: one alone is soon over


class EtcdRestoredError(RuntimeError):
    """Versions went back, as after a restored backup: what a process knows and watches is of another history."""


class Reflector:
    """Lists and watches one kind in one namespace.

    `changed` receives the pools that have news, and `moved_on` those of which no more is new than that a pod is on its
    way. "" stands for all namespaces, and for all objects.
    """

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        namespace: str,
        *,
        selector: str,
        store: Store,
        changed: Callable[[Iterable[Key]], None],
        moved_on: Callable[[Iterable[Key]], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.synced = asyncio.Event()
        self.seen_at = self.alive_at = clock()
        self.problem: str | None = None
        """Reason for which the API server refuses this kind, again and again; None when it does not, or does not
        answer."""
        self._kube = kube
        self._selector = selector
        self._store = store
        self._changed = changed
        self._moved_on = moved_on
        self._clock = clock
        self._version: str | None = None
        self._newest = -1
        """The newest version that a list or watch named; a list never goes back behind it, unless etcd did."""

    async def run(self) -> None:
        """Keep the store right, until cancelled.

        Raises:
            EtcdRestoredError: only a process that begins anew is right again.
        """
        failed = 0
        while True:
            began = self._clock()
            try:
                if self._version is None:
                    await self.list()
                    METRICS.watch_spoke(self.resource.plural)
                await self._watch()
                # A watch that ends at once, again and again, is a proxy's doing.
                failed = 0 if self._clock() - began > LONGEST_PAUSE_SECONDS else failed + 1
            except WatchSilentError as error:
                # A watch from a version that is to come yet, of before a backup was restored, is silent too.
                failed, self._version = 0, None
                log.debug("%s", error)
            except EtcdRestoredError:
                raise
            except (KubeError, KubeUnreachableError) as error:
                failed = 1 if self.seen_at > began else failed + 1
                self._failed(error, failed)
            except Exception:
                # An object that is not what it should be must not end the watch of all others.
                failed += 1
                self._version = None
                log.exception("the watch of %s failed, all of them are listed again", self.resource.plural)
            self.alive_at = self._clock()
            await asyncio.sleep(pause_seconds(failed, shortest=SHORTEST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS))

    def _mark_seen(self) -> None:
        self.seen_at = self.alive_at = self._clock()
        self.problem = None

    async def list(self) -> None:
        """Store everything there is, and drop what is gone.

        Raises:
            EtcdRestoredError: the list is older than what the API server said before.
        """
        listed: list[str] = []
        version = ""
        async for page in self._kube.pages(self.resource, self.namespace, selector=self._selector):
            self._mark_seen()
            # The first page's version: what is made while the others are read comes by the watch.
            if not version:
                version = page.version
                if int(version) < self._newest:
                    kind, before = self.resource.plural, self._newest
                    raise EtcdRestoredError(f"the version of {kind} went back from {before} to {version}")
            for found in page.items:
                listed.append(f"{found['metadata']['namespace']}/{found['metadata']['name']}")
                self._put(found)
        self._changed(self._store.keep_only(self.resource, self.namespace, listed, version=version))
        self._version, self._newest = version, int(version)
        self.synced.set()

    async def _watch(self) -> None:
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - spreads load, hides nothing
        version = self._version or ""
        async for event in self._kube.watch(
            self.resource, self.namespace, version=version, seconds=seconds, selector=self._selector
        ):
            self._mark_seen()
            METRICS.watch_spoke(self.resource.plural)
            self._version = event.object["metadata"]["resourceVersion"]
            self._newest = max(self._newest, int(self._version))
            if event.type == "DELETED":
                self._changed(self._store.remove(self.resource, event.object))
            elif event.type != "BOOKMARK":
                self._put(event.object)

    def _put(self, found: Object) -> None:
        """Store one object; a malformed one must not end the watch of all others."""
        try:
            tell = self._moved_on if self._is_on_its_way(found) else self._changed
            tell(self._store.put(self.resource, found))
        except NONSENSE as error:
            metadata = found.get("metadata")
            name = printable(metadata.get("name") if isinstance(metadata, dict) else None, most=253)
            leave_out("objects", f"{self.resource.plural}/{name}", error)

    def _is_on_its_way(self, found: Object) -> bool:
        """Return whether it is a pod on its way, and was before: one that served, or that lacked a node, has news."""
        if self.resource != PODS:
            return False
        before = self._store.find(PODS, found["metadata"]["namespace"], found["metadata"]["name"])
        return is_on_its_way(found) and (before is None or is_on_its_way(before))

    def _failed(self, error: KubeError | KubeUnreachableError, failed: int) -> None:
        if isinstance(error, KubeError) and error.status == EXPIRED:
            self._version = None
            log.info("%s are listed again: %s", self.resource.plural, error)
        else:
            if isinstance(error, KubeError) and failed >= REFUSALS:
                is_unknown = self.resource == POOLS and error.status == NOT_FOUND
                self.problem = NO_CRD if is_unknown else str(error)
            level = logging.WARNING if failed == 1 else logging.DEBUG
            log.log(level, "the watch of %s: %s", self.resource.plural, error)
