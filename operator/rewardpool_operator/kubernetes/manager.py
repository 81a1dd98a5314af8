"""All pools: what is known of them, whose turn it is, and whether this operator may act.

    reflectors ────────────┬─> store ─> queue ─> workers ─> reconciler of the pool: one pass
    answers to own writes ─┘

`acting` is the one switch: it is asked before every pass and several times a second. When it allows less than before,
passes that are under way are stopped at once; when it allows more, every pool is reconciled.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Final

import aiohttp

from rewardpool_api import names
from rewardpool_api.times import rfc3339
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_operator.kubernetes.budgets import Budgets
from rewardpool_operator.kubernetes.cache.owned import WATCHED, selector_of
from rewardpool_operator.kubernetes.cache.reflector import Reflector
from rewardpool_operator.kubernetes.cache.store import OF_ALL_POOLS, Key, Store
from rewardpool_operator.kubernetes.demands import Strays
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.mounted_files import MountedFiles
from rewardpool_operator.kubernetes.namespaces import Namespaces
from rewardpool_operator.kubernetes.pool_reconciler import PoolReconciler
from rewardpool_operator.kubernetes.queue.requeue import GATHER, ON_THE_WAY
from rewardpool_operator.kubernetes.queue.workqueue import STUCK_SECONDS, Workers
from rewardpool_operator.kubernetes.settings.agent_sandbox import AgentSandbox
from rewardpool_operator.kubernetes.settings.namespace_budgets import NO_BUDGETS, NamespaceBudgets
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity
from rewardpool_operator.kubernetes.settings.pool_defaults import NO_DEFAULTS, PoolDefaults
from rewardpool_operator.kubernetes.shared import SharedParts
from rewardpool_operator.kubernetes.upgrade_slots import UpgradeSlots
from rewardpool_operator.metrics import METRICS

log = logging.getLogger(__name__)

ACTING_SECONDS: Final = 0.2
# Silence ends a watch after half of this; one that did nothing for so long, not even in vain, is dead.
DEAD_SECONDS: Final = 180.0
MOST_NAMED: Final = 50
CONCURRENT_POLLS: Final = 8


class Manager:
    """The operator on one cluster, in these namespaces or, without any, in all."""

    def __init__(
        self,
        kube: Kube,
        session: aiohttp.ClientSession,
        *,
        image: str,
        identity: OperatorIdentity | None = None,
        defaults: PoolDefaults = NO_DEFAULTS,
        budgets: NamespaceBudgets = NO_BUDGETS,
        namespaces: Sequence[str] = (),
        acting: Callable[[], Acting] = lambda: Acting.FULL,
        concurrent_upgrades: int = 1,
        agent_sandbox: bool = False,
    ) -> None:
        self.store = Store()
        self._kube = kube
        self._acting = acting
        self._reconcilers: dict[Key, PoolReconciler] = {}
        self._has_ended = False
        self._workers: Workers[Key] = Workers(self._reconcile)
        self._budgets = Budgets(self.store, over_namespaces=budgets)
        self._upgrade_slots = UpgradeSlots(concurrent_upgrades, wake=lambda key: self._changed([key]))
        watched = namespaces or ("",)
        self._reflectors = [
            *(self._reflector(resources.POOLS, namespace, "") for namespace in watched),
            *(
                self._reflector(resource, namespace, selector_of(resource))
                for resource in WATCHED.values()
                for namespace in watched
            ),
        ]
        self._namespaces = Namespaces(
            kube,
            self.store,
            {namespace: [one for one in self._reflectors if one.namespace == namespace] for namespace in watched},
            ready=self._changed,
            may_act=self._may_write,
        )
        # Not among those that a namespace needs to be served: agent-sandbox may not be installed.
        claims = {
            namespace: self._reflector(resources.SANDBOX_CLAIMS, namespace, names.LABEL_POOL)
            for namespace in (watched if agent_sandbox else ())
        }
        self._reflectors += claims.values()
        self._files = MountedFiles(
            kube, self.store, may_act=self._may_write, is_known=self._namespaces.is_known, gone=self._changed
        )
        self._shared = SharedParts(
            kube=kube,
            session=session,
            store=self.store,
            files=self._files,
            image=image,
            identity=identity,
            defaults=defaults,
            poll_limit=asyncio.Semaphore(CONCURRENT_POLLS),
            budgets=self._budgets,
            upgrade_slots=self._upgrade_slots,
            unseen=self._namespaces.problem,
            sandbox=AgentSandbox(claims),
        )
        self._strays = Strays(kube, self.store, may_act=self._may_write, is_known=self._namespaces.is_known)
        METRICS.read_queue_length(self._workers.length)

    async def run(self) -> None:
        """List, watch and, in a namespace of which everything is known, act; until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for reflector in self._reflectors:
                    group.create_task(reflector.run(), name=f"reflector {reflector.resource.plural}")
                group.create_task(self._namespaces.run(), name="namespaces")
                group.create_task(self._follow_acting(), name="acting")
                group.create_task(self._workers.run(), name="workers")
                group.create_task(self._strays.run(), name="strays")
                group.create_task(self._files.run(), name="mounted files")
        finally:
            self._has_ended = True
            self._forget_reconcilers()

    def is_being_listed(self, namespace: str) -> bool:
        """Return whether the store may have only a part of that namespace yet."""
        return self._namespaces.is_being_listed(namespace)

    def health(self) -> dict[str, Any]:
        """Return the answer of /healthz; `ok` is false when a watch is dead or the queue is stuck."""
        now = monotonic()
        watches: dict[str, float] = {}
        for reflector in self._reflectors:
            plural = reflector.resource.plural
            watches[plural] = max(watches.get(plural, 0.0), round(now - reflector.alive_at, 1))
        oldest = self._workers.oldest() if self._acting() is not Acting.NONE else 0.0
        return {
            # No restart where the API server is away, which it would not bring back, where a namespace may not be seen,
            # or where something of a pool fails: the keys that are known would be lost.
            "ok": not self._has_ended and oldest < STUCK_SECONDS and max(watches.values()) < DEAD_SECONDS,
            "acting": self._acting().value,
            "pools": len(self.store.pools()),
            "namespaces_not_served": self._namespaces.not_served(),
            "oldest_pass_seconds": round(oldest, 1),
            "queue_length": self._workers.length(),
            "upgrades_waiting": self._upgrade_slots.waiting(),
            "watches_silent_seconds": watches,
            "failing": self._failing(),
        }

    def _failing(self) -> dict[str, list[dict[str, str]]]:
        found = [(key, reconciler.failing) for key, reconciler in self._reconcilers.items() if reconciler.failing]
        return {
            "/".join(key): [
                {"step": one.step, "reason": one.reason, "since": rfc3339(one.since), "message": one.message}
                for one in failing
            ]
            for key, failing in found[:MOST_NAMED]
        }

    def _may_write(self) -> bool:
        return self._acting() is Acting.FULL and not self._kube.is_away()

    def _reflector(self, resource: resources.Resource, namespace: str, selector: str) -> Reflector:
        return Reflector(
            self._kube,
            resource,
            namespace,
            selector=selector,
            store=self.store,
            changed=self._changed,
            moved_on=self._moved_on,
        )

    def _changed(self, keys: Iterable[Key]) -> None:
        self._add(keys, after=GATHER.seconds(len(self._reconcilers)))

    def _moved_on(self, keys: Iterable[Key]) -> None:
        self._add(keys, after=ON_THE_WAY.seconds(len(self._reconcilers)))

    def _add(self, keys: Iterable[Key], *, after: float) -> None:
        for key in keys:
            if key[1] == OF_ALL_POOLS:
                self._add((one for one in self.store.pools() if one[0] == key[0]), after=after)
            # Objects of pools that are gone are none of ours.
            if key in self._reconcilers or self.store.pool(key) is not None:
                self._workers.add(key, after=after)

    async def _reconcile(self, key: Key) -> float | None:
        acting = self._acting()
        if acting is Acting.NONE or not self._namespaces.is_known(key[0]):
            return None
        if acting is Acting.FULL and self._kube.is_away():
            acting = Acting.ROUTERS
        reconciler, pool = self._reconcilers.get(key), self.store.pool(key)
        if reconciler is not None and pool is not None and pool["metadata"]["uid"] != reconciler.uid:
            self._close(key)
            reconciler = None
        if reconciler is None:
            reconciler = self._reconcilers[key] = PoolReconciler(self._shared, key, wake=lambda: self._changed([key]))
        again = await reconciler.reconcile(acting, pools=len(self._reconcilers))
        if again is None:
            self._close(key)
            # It may have been made anew during the pass.
            self._changed([key])
        self._changed(self._budgets.woken_by(key))
        return again

    def _close(self, key: Key) -> None:
        self._reconcilers.pop(key).close()
        self._forget(key)

    def _forget_reconcilers(self) -> None:
        # What they know is out of date once another operator has acted.
        for key, reconciler in self._reconcilers.items():
            reconciler.close()
            self._forget(key)
        self._reconcilers.clear()

    def _forget(self, key: Key) -> None:
        self._budgets.forget(key)
        self._upgrade_slots.release(key)
        METRICS.forget_pool(*key)

    async def _follow_acting(self) -> None:
        before = Acting.NONE
        while True:
            acting = self._acting()
            if acting is not before:
                log.info("acting: %s", acting.value)
                if before is not Acting.NONE:
                    await self._workers.cancel_passes()
                if acting is Acting.NONE:
                    self._forget_reconcilers()
                for key in self.store.pools():
                    self._workers.add(key)
                before = acting
            await asyncio.sleep(ACTING_SECONDS)
