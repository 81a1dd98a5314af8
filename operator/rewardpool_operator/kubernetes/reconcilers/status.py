"""The status and events of one pool: a decision is written once it is news, the rest later (`volatile_status.py`).

Events are written beside the status. One that the API server does not take is in the log; what lasts is in conditions.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from math import inf
from time import monotonic
from typing import Final

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.times import rfc3339
from rewardpool_control.plan import Event, Plan
from rewardpool_control.volatile_status import Change, change_between, is_serving, own
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.events.event_correlator import EventCorrelator, Repeat
from rewardpool_operator.kubernetes.events.recorder import event_object
from rewardpool_operator.kubernetes.queue.requeue import FIGURES, START, STEP
from rewardpool_operator.kubernetes.steps import ReconcileStep, Steps
from rewardpool_operator.kubernetes.stored_pool import PoolGoneError, check_uid

log = logging.getLogger(__name__)

# A new operator needs two or three looks to tell requests that wait from connections that were leaked. Until then the
# status keeps its figures.
ORIENTATION_SECONDS: Final = 6.0

CONFLICT_TRIES: Final = 8


class StatusReconciler:
    """The status and events of one pool."""

    def __init__(self, kube: Kube, store: Store, steps: Steps, *, clock: Callable[[], float] = monotonic) -> None:
        self._kube = kube
        self._store = store
        self._steps = steps
        self._events = EventCorrelator()
        self._clock = clock
        self._begun_at = clock()
        self._status_at = float("-inf")
        self._unwritten: tuple[Object, RewardPoolStatus] | None = None
        """The status that was found, and the one that replaces it when its turn comes; None when nothing waits."""
        self._step_due_at: float | None = None
        """Monotonic time at which a step is written with all that came since; None when none waits."""

    def seconds_until_writing(self) -> float:
        """Return the seconds until a pass should write what waits; infinite when nothing does, or a write failed."""
        left = inf if self._step_due_at is None else self._step_due_at - self._clock()
        return left if left > 0 else inf

    def as_decided(self, pool: RewardPool, found: Object) -> RewardPool:
        """The pool with the status that was decided last, be it written or not."""
        # Another status than before: another operator decided meanwhile.
        if self._unwritten is None or self._unwritten[0] != found:
            return pool
        return pool.model_copy(update={"status": self._unwritten[1]})

    async def reconcile(
        self,
        pool: RewardPool,
        found: Object,
        plan: Plan,
        *,
        also: Iterable[Event] = (),
        held: bool = False,
        pools: int = 1,
    ) -> None:
        """Write status and events; the status later where it failed a moment ago.

        Where the pool is held, nothing volatile is to be waited for.

        Raises:
            PoolGoneError: the pool was deleted, and the watch of pools said nothing.
        """
        may_write = self._steps.pause(ReconcileStep.STATUS) == 0
        # Together: where a thousand pools start at once, every single write waits its turn at the API server.
        outcomes = await asyncio.gather(
            *((self._write(pool, found, plan.status, held=held, pools=pools),) if may_write else ()),
            *(self._record(pool, event) for event in (*plan.events, *also)),
            return_exceptions=True,
        )
        failed = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
        if failed is not None and not isinstance(failed, (KubeError, KubeUnreachableError)):
            raise failed
        if failed is not None or may_write:
            problem = None if failed is None else str(failed)
            self._steps.came_to(ReconcileStep.STATUS, ConditionReason.STATUS_NOT_WRITTEN, problem)

    async def _write(
        self, pool: RewardPool, found: Object, status: RewardPoolStatus, *, held: bool, pools: int
    ) -> None:
        wanted = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        change, now = change_between(own(found), own(wanted)), self._clock()
        if change is Change.NOTHING:
            self._unwritten = self._step_due_at = None
            return
        is_new_here = not held and now - self._begun_at < ORIENTATION_SECONDS
        if status.load is None and found.get("load") and is_new_here:
            return
        if change is Change.STEP and self._step_due_at is None:
            self._step_due_at = now + (STEP if is_serving(wanted) else START).seconds(pools)
        due_at = {Change.FIGURES: self._status_at + FIGURES.seconds(pools), Change.STEP: self._step_due_at}.get(change)
        if due_at is not None and now < due_at:
            self._unwritten = found, status
            return
        written = await self._applied(pool, wanted)
        self._store.put(resources.POOLS, written)
        self._status_at, self._unwritten, self._step_due_at = now, None, None

    async def _applied(self, pool: RewardPool, status: Object) -> Object:
        """Write the status of exactly this pool, and return the object."""
        namespace, name = pool.metadata.namespace, pool.metadata.name
        known = self._store.pool((namespace, name))
        for tries_left in reversed(range(CONFLICT_TRIES)):
            # A uid is no precondition of a write to a custom resource's status, so the version is.
            check_uid(known, pool.metadata.uid)
            version = {} if known is None else {"resourceVersion": known["metadata"]["resourceVersion"]}
            metadata = {"name": name, "namespace": namespace, **version}
            manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "status": status}
            try:
                return await self._kube.apply(resources.POOLS, manifest, subresource="status")
            except KubeError as error:
                if error.is_not_found:
                    break
                if not error.is_conflict or not tries_left:
                    raise
                known = await self._kube.get(resources.POOLS, namespace, name)
                decided = status["observedGeneration"]
                if known is not None and known["metadata"].get("generation", decided) < decided:
                    # Of a restored backup: what was decided about is not there any more.
                    raise
            if known is None:
                break
        raise PoolGoneError(f"{namespace}/{name} is gone")

    async def _record(self, pool: RewardPool, event: Event) -> None:
        try:
            await self._write_event(pool, event)
        except KubeError as error:
            # The log has what an event would have said, and conditions have what lasts.
            log.warning("an event was not written: %s", error)

    async def _write_event(self, pool: RewardPool, event: Event) -> None:
        memory, now = self._events, self._clock()
        taken = memory.correlate(event, now=now)
        if isinstance(taken, Repeat):
            series = {"count": taken.count, "lastObservedTime": rfc3339(datetime.now(UTC))}
            try:
                await self._kube.merge(resources.EVENTS, pool.metadata.namespace, taken.name, {"series": series})
            except KubeError as error:
                # Events end after an hour, or by hand; the next time that it is said it is a new one.
                if not error.is_not_found:
                    raise
                memory.gone(event)
        elif taken is not None:
            log.info("%s: %s", event.reason, event.message)
            manifest = event_object(pool, event)
            await self._kube.create(resources.EVENTS, manifest)
            memory.written(event, manifest["metadata"]["name"], now=now)
