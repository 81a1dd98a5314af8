"""Reconciler of one pool: its memory from pass to pass, and one pass: observe, decide, apply.

Level-triggered: a pass reads everything, whatever woke it. Passes of one pool never overlap (`queue/workqueue.py`).
Objects come from the store, which watches fill; Secrets are read by name; routers are asked.

The routers' lists need pods and the keys that are known, and nothing else. Everything else is a step that fails alone
(`steps.py`): what cannot be read is as it was read last, what cannot be written is written later, and where nothing can
be decided (no key, an object that is not valid, a defect) the lists are kept all the same (`decide/hold.py`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

from rewardpool_api import RewardPool
from rewardpool_api.reasons import ConditionReason
from rewardpool_control.decide import decide
from rewardpool_control.decide.hold import hold, kept_lists
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import Failure, Snapshot
from rewardpool_kube import resources
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.store import Key
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.tls import Tls
from rewardpool_operator.kubernetes.demands import Demands
from rewardpool_operator.kubernetes.desired import Rendered, left_running, rendered, routers_are_new
from rewardpool_operator.kubernetes.events.recorder import log_scaling
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.observe import Observer, snapshot_without_routers
from rewardpool_operator.kubernetes.polls.downloads import pins_of
from rewardpool_operator.kubernetes.polls.parity_check import ParityCheck
from rewardpool_operator.kubernetes.polls.pod_warnings import PodWarnings
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.kubernetes.queue.requeue import (
    BUSY_SECONDS,
    FIXED,
    PassOutcome,
    rest_of,
    seconds_until_next,
)
from rewardpool_operator.kubernetes.reconcilers.credentials import CredentialsReconciler
from rewardpool_operator.kubernetes.reconcilers.owned_objects import OwnedObjectsReconciler
from rewardpool_operator.kubernetes.reconcilers.status import StatusReconciler
from rewardpool_operator.kubernetes.reconcilers.worker_lists import WorkerListReconciler
from rewardpool_operator.kubernetes.settings.agent_sandbox import is_needed
from rewardpool_operator.kubernetes.shared import SharedParts
from rewardpool_operator.kubernetes.steps import Failing, ReconcileStep, Steps
from rewardpool_operator.kubernetes.stored_pool import PoolGoneError, StoredPool, check_uid
from rewardpool_operator.logs import about
from rewardpool_operator.metrics import METRICS

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PassInput:
    """Input of a pass when it polls routers and workers."""

    pool: RewardPool
    keys: Keys
    tls: Tls
    revision: str
    acting: Acting
    pools: int


class PoolReconciler:
    """Keeps one pool, and not one of the same name that is made after it was deleted."""

    def __init__(self, shared: SharedParts, key: Key, *, wake: Callable[[], None]) -> None:
        self.key = key
        self._kube = shared.kube
        self._store = shared.store
        pool = shared.store.pool(key)
        self.uid: str | None = pool["metadata"]["uid"] if pool is not None else None
        """UID of the pool; None when it did not exist."""
        self._budgets = shared.budgets
        self._upgrade_slots = shared.upgrade_slots
        self._unseen = partial(shared.unseen, key[0])
        self._sandbox = shared.sandbox
        polling = Polling(session=shared.session, limit=shared.poll_limit, news=wake)
        self._observer = Observer(polling)
        self._pod_warnings = PodWarnings(shared.kube, polling)
        self._golden = ParityCheck(shared.kube, polling, keep=partial(shared.store.put, resources.DEPLOYMENTS))
        self._demands = Demands(shared.kube, shared.store)
        self._nulls: str | None = None
        self._parsed: StoredPool | None = None
        self._render = partial(rendered, image=shared.image, identity=shared.identity, defaults=shared.defaults)
        self._rendered: tuple[object, Rendered] | None = None
        self._busy_at = monotonic()
        self._steps = Steps(is_away=shared.kube.is_away)
        self._credentials = CredentialsReconciler(shared.kube, shared.store, key, self._steps, polling)
        self._lists = WorkerListReconciler(key, self._observer.router_admin)
        self._owned = OwnedObjectsReconciler(shared.kube, shared.store, shared.files, self._steps)
        self._status = StatusReconciler(shared.kube, shared.store, self._steps)
        self._acted = Acting.FULL
        self._decided_with: tuple[Failure, ...] = ()
        self._oriented = False
        """True if every router answered, or is known not to answer, since this operator began."""

    @property
    def failing(self) -> tuple[Failing, ...]:
        """Present failures, most important first."""
        return self._steps.failing

    async def reconcile(self, acting: Acting, *, pools: int) -> float | None:
        """Make a pass.

        Returns:
            Seconds until the next one is due without an event; None when there is no such pool, or another one.
        """
        objects = self._store.objects(self.key)
        if objects is None or objects.pool["metadata"]["uid"] != self.uid:
            return None
        with about("/".join(self.key)):
            try:
                return await self._reconcile(objects, acting, pools=pools)
            finally:
                METRICS.record_failing(*self.key, [(one.step, one.reason, one.since) for one in self.failing])

    async def _reconcile(self, objects: Objects, acting: Acting, *, pools: int) -> float | None:
        try:
            outcome = await self._pass(objects, acting, pools=pools)
        except PoolGoneError as error:
            log.info("%s", error)
            known = self._store.pool(self.key)
            if known is not None and known["metadata"]["uid"] == self.uid:
                self._store.forget(resources.POOLS, *self.key)
            return None
        except Exception as error:
            # A defect in one pass over one pool must not end the care for it; the log has all of it.
            self._defect(error, "a pass failed")
            self._credentials.suspect()
            self._busy_at = monotonic()
            return max(BUSY_SECONDS, self._steps.pause(ReconcileStep.DECISION)) * _jitter()
        if self._steps.failing:
            self._busy_at = monotonic()
            outcome = PassOutcome.BUSY if outcome is PassOutcome.QUIET else outcome
        if self._has_changed_since(objects.pool) or self._failures() != self._decided_with:
            outcome = PassOutcome.CHANGED
        return self._pause(outcome, acting, pools=pools)

    def _has_changed_since(self, looked_at: Object) -> bool:
        """Return whether another spec is known by now: the answer to the status' write has it before the watch."""
        now = self._store.pool(self.key)
        return now is not None and now["metadata"].get("generation") != looked_at["metadata"].get("generation")

    def close(self) -> None:
        self._observer.close()
        self._pod_warnings.close()
        self._golden.close()
        self._credentials.close()

    async def _pass(self, objects: Objects, acting: Acting, *, pools: int) -> PassOutcome:
        self._decided_with = self._failures()
        if acting is Acting.FULL:
            await self._credentials.read(objects, pools=pools)
            self._check_uid()
            # What came meanwhile is looked at in this pass, and what comes from here on in the next one: everything
            # below is made of this one version of the pool.
            objects = self._store.objects(self.key) or objects
            objects = replace(objects, warnings=await self._pod_warnings.notes(objects))
        if self._kube.is_away():
            acting = Acting.ROUTERS
        stored = self._stored(objects.pool)
        is_deleted = "deletionTimestamp" in objects.pool["metadata"]
        pool = self._status.as_decided(stored.pool, objects.status)
        if acting is not Acting.FULL:
            message = "the API server does not answer, or refuses the operator's Lease"
            self._steps.failed(ReconcileStep.OBJECTS, ConditionReason.API_SERVER_UNREACHABLE, message)
        elif self._acted is not Acting.FULL:
            # It answers again. What could not be written meanwhile is tried first, and said of only when it fails now.
            self._steps.succeeded(ReconcileStep.OBJECTS)
        self._acted = acting
        if not self._credentials.opens_routers:
            return PassOutcome.QUIET if is_deleted else await self._without_keys(pool, objects, acting)
        may_change = acting is Acting.FULL and self._oriented and not stored.problems and not is_deleted
        keys = await self._credentials.keys(pool, objects, may_change=may_change)
        tls = await self._credentials.certificate(pool, may_read=acting is Acting.FULL, pools=pools)
        self._check_uid()
        seen = PassInput(
            pool=pool, keys=keys, tls=tls, revision=pool.status.current_revision, acting=acting, pools=pools
        )
        if is_deleted:
            # Owner references take everything away, and writing now would only make it anew. While a finalizer keeps
            # the pool, its pods serve.
            return PassOutcome.CHANGED if await self._keep_lists(seen, objects, set()) else PassOutcome.QUIET
        held, wanted = self._why_held(stored, objects), None
        if held is None and (not self._credentials.known or self._are_claims_being_listed(stored.pool, objects)):
            # A Secret is being read still, which is no failure: without it nothing is decided, nor told.
            await self._keep_lists(seen, objects, set())
            return PassOutcome.BUSY
        if held is None:
            try:
                wanted = self._wanted(stored, seen, objects)
                seen = replace(seen, revision=wanted.revision.name)
            except Exception as error:
                held = self._defect(error)
        snapshot = await self._snapshot(seen, objects)
        if wanted is not None:
            snapshot = await self._with_words(seen, replace(snapshot, offer=wanted.offer), objects)
        self._check_uid()
        # From here to `decided` nothing is waited for, or two pools could take the same replicas of a budget.
        snapshot = replace(snapshot, claims=self._budgets.claims(self.key))
        if held is None:
            try:
                plan = decide(snapshot)
                self._steps.succeeded(ReconcileStep.DECISION)
            except Exception as error:
                held = self._defect(error)
        if held is not None:
            plan, wanted = hold(self._with_failures(snapshot, cause=held), held), None
        changed = await self._carry_out(plan, wanted, seen, snapshot, objects)
        return PassOutcome.BUSY if held is not None else PassOutcome.from_plan(plan, changed=changed)

    def _wanted(self, stored: StoredPool, seen: PassInput, objects: Objects) -> Rendered:
        # Never from the status, which always changes.
        keys, tls, pins = seen.keys, seen.tls, pins_of(seen.pool, objects)
        made_of = (stored.declared, keys, tls, pins)
        if self._rendered is None or self._rendered[0] != made_of:
            self._rendered = made_of, self._render(stored.pool, keys, tls=tls, pins=pins)
        wanted = left_running(
            self._rendered[1], seen.pool, objects, may_upgrade=partial(self._upgrade_slots.acquire, self.key)
        )
        self._nulls = wanted.nulls
        if self._upgrade_slots.holds(self.key) and routers_are_new(wanted, objects):
            self._upgrade_slots.release(self.key)
        return wanted

    async def _carry_out(
        self, plan: Plan, wanted: Rendered | None, seen: PassInput, snapshot: Snapshot, objects: Objects
    ) -> bool:
        """Bring a plan about, the lists first; return whether another pass follows soon."""
        if seen.acting is not Acting.FULL or not self._oriented:
            return await self._lists.restore(plan, snapshot.routers)
        self._budgets.decided(self.key, plan.status)
        changed = await self._lists.reconcile(plan)
        self._check_uid()
        pool, writing = seen.pool, self._write(seen, objects, plan, wanted)
        seen = replace(seen, pool=pool.model_copy(update={"status": plan.status}))
        changed |= await self._beside_the_lists(writing, seen, leaving={*plan.drain, *plan.stop})
        key = seen.keys.pool if pool.spec.router.auth.uses_key else None
        self._golden.measure(pool, snapshot.golden, plan.measure, key=key)
        if wanted is not None:
            await self._demands.remove_old(objects.leases, now=snapshot.now)
        METRICS.record_pool(pool, plan.status)
        log_scaling(pool.status, plan.status)
        METRICS.record_events(*self.key, (event.reason for event in plan.events))
        return changed

    def _check_uid(self) -> None:
        """Raise PoolGoneError where the pool was deleted and made anew while something was waited for."""
        check_uid(self._store.pool(self.key), self.uid)

    async def _snapshot(self, seen: PassInput, objects: Objects) -> Snapshot:
        snapshot = await self._observer.snapshot(
            seen.pool, objects, keys=seen.keys, tls=seen.tls, revision=seen.revision
        )
        self._oriented = self._oriented or not self._observer.is_waiting_for_first_answers
        return replace(snapshot, routers=self._lists.record(snapshot.routers))

    async def _with_words(self, seen: PassInput, snapshot: Snapshot, objects: Objects) -> Snapshot:
        """The snapshot with what people and jobs wrote; what cannot be read is as it was read last."""
        away = seen.acting is not Acting.FULL
        snapshot = replace(
            snapshot,
            golden=await self._golden.golden(seen.pool, revision=seen.revision),
            announcements=await self._demands.observe(objects.leases, now=snapshot.now, away=away),
        )
        self._steps.came_to(ReconcileStep.GOLDEN_SET, ConditionReason.GOLDEN_SET_UNREADABLE, self._golden.refused)
        self._steps.came_to(ReconcileStep.DEMANDS, ConditionReason.DEMANDS_UNREADABLE, self._demands.refused)
        return self._with_failures(self._credentials.observed(snapshot))

    def _with_failures(self, snapshot: Snapshot, *, cause: Failure | None = None) -> Snapshot:
        self._decided_with = self._failures()
        others = [failure for failure in self._decided_with if cause is None or failure.reason != cause.reason]
        return replace(snapshot, failures=tuple(others))

    def _defect(self, error: Exception, what: str = "deciding about the pool failed") -> Failure:
        """Return an unexpected error of rendering or deciding as a failure, so that routers still get their workers."""
        log.error(what, exc_info=error)
        METRICS.pass_failed("defect")
        # Its kind alone: its words may be of anybody's making.
        message = f"{type(error).__name__} in the operator; its log has more"
        self._steps.failed(ReconcileStep.DECISION, ConditionReason.RECONCILE_FAILED, message)
        return next(one.as_failure() for one in self._steps.failing if one.step is ReconcileStep.DECISION)

    def _why_held(self, stored: StoredPool, objects: Objects) -> Failure | None:
        """Return why only the routers' lists are kept; None when there is no cause for that, or none is known yet."""
        if stored.problems:
            return Failure(reason=ConditionReason.INVALID_OBJECT.value, message="; ".join(stored.problems))
        problem = self._sandbox.problem(self.key[0])
        if problem is not None and is_needed(stored.pool, objects):
            return Failure(reason=ConditionReason.NO_AGENT_SANDBOX.value, message=problem)
        return None if self._credentials.known else self._unread()

    def _are_claims_being_listed(self, pool: RewardPool, objects: Objects) -> bool:
        return self._sandbox.is_being_listed(self.key[0]) and is_needed(pool, objects)

    def _unread(self) -> Failure | None:
        """Return why the Secrets could not be read; None while they are being read for the first time."""
        return next((one.as_failure() for one in self._steps.failing if one.step is ReconcileStep.SECRETS), None)

    async def _without_keys(self, pool: RewardPool, objects: Objects, acting: Acting) -> PassOutcome:
        """An operator that was started while Secrets cannot be read: no router can be asked, and that is told."""
        cause = self._unread()
        if acting is not Acting.FULL or cause is None:
            return PassOutcome.BUSY
        plan = hold(snapshot_without_routers(pool, objects), cause, routers_asked=False)
        await self._status.reconcile(pool, objects.status, plan, held=True)
        METRICS.record_pool(pool, plan.status)
        return PassOutcome.BUSY

    async def _beside_the_lists(
        self, writing: Coroutine[Any, Any, bool], seen: PassInput, *, leaving: set[str]
    ) -> bool:
        """Write, and keep the routers' lists meanwhile: an API server that is slow holds up no router.

        Returns what the writing does. `leaving` are workers, by name, that this pass took off the lists.
        """
        task = asyncio.ensure_future(writing)
        try:
            while not (await asyncio.wait({task}, timeout=BUSY_SECONDS))[0]:
                objects = self._store.objects(self.key)
                if objects is not None and objects.pool["metadata"]["uid"] == self.uid:
                    await self._keep_lists(seen, objects, leaving)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        return task.result()

    async def _keep_lists(self, seen: PassInput, objects: Objects, leaving: set[str]) -> bool:
        """Bring the lists to what the workers are and nothing else; return whether a router took a change."""
        snapshot = await self._snapshot(seen, objects)
        kept = kept_lists(snapshot, barred=frozenset(leaving))
        plan = Plan(leaves=kept.leaves, joins=kept.joins, status=seen.pool.status)
        full = seen.acting is Acting.FULL and self._oriented
        return await (self._lists.reconcile(plan) if full else self._lists.restore(plan, snapshot.routers))

    async def _write(self, seen: PassInput, objects: Objects, plan: Plan, wanted: Rendered | None) -> bool:
        """Write everything of a plan but the lists; return whether another pass follows soon."""
        may_write_secrets = self._credentials.may_write
        changed = await self._owned.reconcile(seen.pool, objects, plan, wanted, may_write_secrets=may_write_secrets)
        if self._owned.in_the_way:
            # Trainers would present their key to whoever answers there.
            plan = replace(plan, status=plan.status.model_copy(update={"url": seen.pool.status.url}))
        also = self._lists.repairs()
        await self._status.reconcile(seen.pool, objects.status, plan, also=also, held=wanted is None, pools=seen.pools)
        return changed

    def _failures(self) -> tuple[Failure, ...]:
        """Return the failures for the status: refused objects at once, others when they last."""
        # No decision: the one that would say so has succeeded, or `hold` has it as its cause.
        failing = [
            one.as_failure()
            for one in self._steps.failing
            if one.step is not ReconcileStep.DECISION
            and (one.is_reported or one.reason is ConditionReason.APPLY_FAILED)
        ]
        unseen = self._unseen()
        if unseen is not None:
            failing.append(Failure(reason=ConditionReason.NAMESPACE_NOT_SERVED.value, message=unseen))
        if self._nulls is not None:
            failing.append(Failure(reason=ConditionReason.NULL_IGNORED.value, message=self._nulls))
        return tuple(failing)

    def _stored(self, found: Object) -> StoredPool:
        """The pool with its model, parsed once for each of its versions."""
        if self._parsed is None or self._parsed.object is not found:
            stored = StoredPool.parse(found)
            before, self._parsed = self._parsed, replace(stored, pool=self._budgets.bound(stored.pool))
            problems = self._parsed.problems
            if problems and (before is None or before.problems != problems):
                log.warning("the stored pool is not valid, so its size stays as it is: %s", "; ".join(problems))
        return self._parsed

    def _pause(self, outcome: PassOutcome, acting: Acting, *, pools: int) -> float:
        now = monotonic()
        if outcome is not PassOutcome.QUIET:
            self._busy_at = now
        rest = rest_of(self._parsed.pool) if self._parsed is not None else FIXED
        pace = seconds_until_next(outcome, quiet_for=now - self._busy_at, rest=rest, pools=pools)
        if acting is Acting.FULL:
            # Else no pass reads them: what is due stays due, and would have pass follow upon pass without a pause.
            pace = min(pace, self._credentials.seconds_until_reading(pools=pools))
        pace *= _jitter()
        return min(pace, self._status.seconds_until_writing())


def _jitter() -> float:
    return random.uniform(0.8, 1.0)  # noqa: S311 - spreads passes, hides nothing
