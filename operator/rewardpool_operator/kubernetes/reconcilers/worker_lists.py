"""The routers' lists: who leaves and who joins, by the routers' own API. Takes no API server, and waits for none.

A router that refuses or is silent is tried again by the next pass, which sees what its list still lacks.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

from rewardpool_control.plan import Event, Join, Leave, Plan
from rewardpool_control.snapshot import Router
from rewardpool_operator.kubernetes.cache.store import Key
from rewardpool_operator.kubernetes.events.event_correlator import RepairTally
from rewardpool_operator.kubernetes.worker_list_drift import WorkerListDrift
from rewardpool_operator.metrics import METRICS, Change
from rewardpool_operator.routers.admin import RouterAdmin, RouterError

log = logging.getLogger(__name__)


class WorkerListReconciler:
    """The lists of one pool's routers; `router_admin` has the router of a pod, None while it is silent."""

    def __init__(self, key: Key, router_admin: Callable[[str], RouterAdmin | None]) -> None:
        self._key = key
        self._router_admin = router_admin
        self._drift = WorkerListDrift()
        self._repairs = RepairTally()

    def record(self, routers: Iterable[Router]) -> tuple[Router, ...]:
        """Record the routers' lists before anything is changed; return the routers with how long they lack a worker."""
        return self._drift.record(routers, now=monotonic())

    async def reconcile(self, plan: Plan) -> bool:
        """Bring the lists to what they shall be, off first, then on; return whether a router took a change."""
        left = await self._change(plan.leaves)
        return await self._join(plan.joins) or left

    async def restore(self, plan: Plan, routers: Iterable[Router]) -> bool:
        """Fill the routers that have no worker, and nothing else: the API server is away, or another may lead."""
        # What is known of the pods may be old. A router that has workers may have them from the operator that leads
        # now; one that has none can only gain.
        empty = {router.name for router in routers if router.registered is not None and not router.registered}
        return await self._join([join for join in plan.joins if join.router in empty])

    async def _join(self, joins: Sequence[Join]) -> bool:
        self._drift.to_join(joins, now=monotonic())
        return await self._change(joins)

    def repairs(self) -> Iterable[Event]:
        """The event that sums up what was repaired, when it is time for one."""
        return self._repairs.due(now=monotonic())

    async def _change(self, changes: Iterable[Join | Leave]) -> bool:
        return any(await asyncio.gather(*(self._at_router(change) for change in changes)))

    async def _at_router(self, change: Join | Leave) -> bool:
        admin = self._router_admin(change.router)
        if admin is None:
            return False
        try:
            if isinstance(change, Join):
                await admin.add(change.worker_url)
            else:
                await admin.remove(change.worker_id)
        except RouterError as error:
            log.warning("router %s: %s", change.router, error)
            return False
        if self._drift.is_repair(change):
            kind: Change = "join" if isinstance(change, Join) else "leave"
            METRICS.router_repaired(*self._key, kind)
            self._repairs.add(kind)
        self._drift.done(change)
        return True
