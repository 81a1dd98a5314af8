"""One pool, kept as declared: what is remembered of it from pass to pass, and one pass: observe, decide, apply.

Level-triggered: a pass looks at all there is, whatever woke it. Passes of one pool never overlap (`workqueue.py`).
Objects come from the store, which watches fill; Secrets are read by name; routers are asked.

The routers' lists need pods and the keys that are known, and nothing else. Everything else is a step that fails alone
(`steps.py`): what cannot be read is as it was read last, what cannot be written is written later, and where nothing can
be decided (no key, an object that is not valid, a defect) the lists are kept all the same (`decide/hold.py`).
"""

import asyncio
import enum
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, Final, Self

import aiohttp

from rewardpool_api import RewardPool, names
from rewardpool_api.reasons import ConditionReason, EventReason
from rewardpool_operator.decide import decide
from rewardpool_operator.decide.hold import hold, kept_lists
from rewardpool_operator.kubernetes import client, render
from rewardpool_operator.kubernetes.apply import Apply, Written
from rewardpool_operator.kubernetes.budgets import Budgets
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.client import Kube, KubeError, KubeUnreachableError, Object
from rewardpool_operator.kubernetes.credentials.key_rotator import KeyRotator
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.secret_deletion import shows_a_deletion
from rewardpool_operator.kubernetes.credentials.secret_reader import SecretReader
from rewardpool_operator.kubernetes.credentials.tls import CertificateReader, Tls
from rewardpool_operator.kubernetes.demands import Demands
from rewardpool_operator.kubernetes.desired import Rendered, left_running, rendered, routers_are_new
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.observe import Observer, snapshot_without_routers
from rewardpool_operator.kubernetes.operator_identity import OperatorIdentity
from rewardpool_operator.kubernetes.polls.downloads import pins_of
from rewardpool_operator.kubernetes.polls.parity_check import ParityCheck
from rewardpool_operator.kubernetes.polls.pod_warnings import PodWarnings
from rewardpool_operator.kubernetes.recorder import log_scaling
from rewardpool_operator.kubernetes.requeue import BUSY_SECONDS, seconds_between_figures, seconds_until_next
from rewardpool_operator.kubernetes.steps import Failing, Step, Steps
from rewardpool_operator.kubernetes.stored_pool import StoredPool
from rewardpool_operator.kubernetes.upgrade_slots import UpgradeSlots
from rewardpool_operator.logs import about
from rewardpool_operator.metrics import METRICS
from rewardpool_operator.metrics import Outcome as RolloutOutcome
from rewardpool_operator.plan import Plan
from rewardpool_operator.snapshot import Failure, Snapshot

log = logging.getLogger(__name__)

AFTER_CHANGE_SECONDS: Final = 0.5
"""Until the next pass after one that wrote something: a step of a plan is often followed by another."""
_TOLD_BY_EVENTS: Final = (ConditionReason.SCALING, ConditionReason.UNSCHEDULABLE)
"""Reasons of Progressing whose end a pod tells by itself; a pool may have them for days."""
_ROLLOUT_ENDS: Final[Mapping[str, RolloutOutcome]] = {
    EventReason.ROLLOUT_COMPLETED: "completed",
    EventReason.ROLLED_BACK: "rolled_back",
}


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the reconcilers of all pools share."""

    kube: Kube
    session: aiohttp.ClientSession
    store: Store
    image: str
    """RewardPool's own."""
    place: OperatorIdentity | None
    """Where this operator runs; None outside of the cluster."""
    aside: asyncio.Semaphore
    """Bounds what is asked aside at a time."""
    budgets: Budgets
    upgrade_slots: UpgradeSlots
    """Of pools that change because the operator was upgraded."""
    unseen: Callable[[str], str | None] = lambda _: None
    """What may not be seen any more in a namespace, in words; None when nothing is wrong there."""


class Outcome(enum.Enum):
    """What a pass came to, as far as the next one depends on it."""

    QUIET = enum.auto()
    BUSY = enum.auto()
    """There is load, or something is under way that no event will tell the end of."""
    CHANGED = enum.auto()
    """Something was written."""

    @classmethod
    def of(cls, plan: Plan, *, changed: bool) -> Self:
        """The outcome of a plan that was carried out."""
        status = plan.status
        loaded = status.load is not None and (status.load.in_flight or status.load.waiting)
        moving = plan.joins or plan.leaves or plan.drain or plan.keep or plan.retire or status.draining_replicas
        progressing = status.condition("Progressing")
        rolling = progressing and progressing.status == "True" and progressing.reason not in _TOLD_BY_EVENTS
        rotation = status.auth.rotation
        rotating = rotation is not None and rotation.phase != "Done"
        if changed:
            return cls.CHANGED
        return cls.BUSY if loaded or moving or rolling or rotating else cls.QUIET


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a pass goes by when it asks routers and workers."""

    pool: RewardPool
    keys: Keys
    tls: Tls
    revision: str


class PoolReconciler:
    """Keeps one pool.

    Args:
        shared: with the reconcilers of other pools.
        key: of the pool.
        wake: has a pass made soon.
    """

    def __init__(self, shared: Shared, key: Key, *, wake: Callable[[], None]) -> None:
        self.key = key
        self._kube = shared.kube
        self._store = shared.store
        self._budgets = shared.budgets
        self._upgrade_slots = shared.upgrade_slots
        self._unseen = partial(shared.unseen, key[0])
        self._image = shared.image
        self._place = shared.place
        self._observer = Observer(shared.session, news=wake, aside=shared.aside)
        self._trouble = PodWarnings(shared.kube, news=wake, aside=shared.aside)
        self._golden = ParityCheck(
            shared.kube,
            shared.session,
            keep=partial(shared.store.put, client.DEPLOYMENTS),
            news=wake,
            aside=shared.aside,
        )
        self._secrets = SecretReader(shared.kube, shared.store, key, news=wake)
        self._certificate = CertificateReader(shared.kube, news=wake)
        self._demands = Demands(shared.kube, shared.store)
        self._written = Written()
        self._keys = KeyRotator(shared.session, aside=shared.aside)
        self._parsed: StoredPool | None = None
        self._rendered: tuple[object, Rendered] | None = None
        self._busy_at = monotonic()
        self._steps = Steps()
        self._decided_with: tuple[Failure, ...] = ()
        """What failed at the last decision; what fails since is for the next one."""
        self._oriented = False
        """Whether every router was heard, or is known to be silent, since this operator began."""

    @property
    def failing(self) -> tuple[Failing, ...]:
        """What fails now, most important first."""
        return self._steps.failing

    async def look(self, acting: Acting, *, pools: int) -> float | None:
        """Make a pass.

        Args:
            acting: what may be done; not `Acting.NONE`.
            pools: how many there are, for the pace.

        Returns:
            Seconds until the next one is due without an event; None when there is no such pool.
        """
        objects = self._store.objects(self.key)
        if objects is None:
            return None
        with about("/".join(self.key)):
            try:
                return await self._look(objects, acting, pools=pools)
            finally:
                METRICS.record_failing(*self.key, [(one.step, one.reason, one.since) for one in self.failing])

    async def _look(self, objects: Objects, acting: Acting, *, pools: int) -> float:
        try:
            outcome = await self._pass(objects, acting, pools=pools)
        except Exception as error:
            # A defect in one pass over one pool must not end the care for it; the log has all of it.
            self._defect(error, "a pass failed")
            self._secrets.suspect()
            self._busy_at = monotonic()
            return max(BUSY_SECONDS, self._steps.pause(Step.DECISION)) * _jitter()
        if self._steps.failing:
            self._busy_at = monotonic()
            outcome = Outcome.BUSY if outcome is Outcome.QUIET else outcome
        if self._has_changed_since(objects.pool) or self._failures() != self._decided_with:
            outcome = Outcome.CHANGED
        return self._pause(outcome, scales=bool(objects.pool["spec"].get("autoscaling")), pools=pools)

    def _has_changed_since(self, looked_at: Object) -> bool:
        """Whether another spec is known by now: the answer to the status' write tells of it before the watch does."""
        now = self._store.pool(self.key)
        return now is not None and now["metadata"].get("generation") != looked_at["metadata"].get("generation")

    def close(self) -> None:
        """Stop asking."""
        self._observer.close()
        self._trouble.close()
        self._golden.close()
        self._secrets.close()
        self._certificate.close()

    async def _pass(self, objects: Objects, acting: Acting, *, pools: int) -> Outcome:
        self._decided_with = self._failures()
        if acting is Acting.FULL:
            await self._read_secrets(objects, pools=pools)
            # What came meanwhile is looked at in this pass, and what comes from here on in the next one: everything
            # below is made of this one version of the pool.
            objects = self._store.objects(self.key) or objects
            objects = replace(objects, trouble=self._trouble.notes(objects))
        if self._kube.is_away():
            acting = Acting.ROUTERS
        stored = self._stored(objects.pool)
        if "deletionTimestamp" in objects.pool["metadata"]:
            # Owner references take everything away; writing now would only make it anew.
            return Outcome.QUIET
        pool = self._written.as_decided(stored.pool, objects.pool.get("status") or {})
        if acting is not Acting.FULL:
            message = "the API server does not answer, or refuses the operator's Lease"
            self._steps.failed(Step.OBJECTS, ConditionReason.API_SERVER_UNREACHABLE, message)
        if not self._secrets.opens_routers:
            return await self._without_keys(pool, objects, acting, pools=pools)
        may_change = acting is Acting.FULL and self._oriented and self._secrets.current and not stored.problems
        keys = await self._keys.look(pool, objects, may_change=may_change, known=self._secrets.known)
        tls = await self._look_at_certificate(pool, acting, pools=pools)
        held = self._why_held(stored)
        seen = Seen(pool=pool, keys=keys, tls=tls, revision=pool.status.current_revision)
        if held is not None:
            return await self._hold(seen, objects, held, acting, pools=pools)
        try:
            wanted = self._rendered_of(stored, keys=keys, tls=tls, pins=pins_of(pool, objects))
            wanted = left_running(wanted, pool, objects, may_upgrade=partial(self._upgrade_slots.acquire, self.key))
        except Exception as error:
            return await self._hold(seen, objects, self._defect(error), acting, pools=pools)
        if self._upgrade_slots.holds(self.key) and routers_are_new(wanted, objects):
            self._upgrade_slots.release(self.key)
        seen = replace(seen, revision=wanted.revision.name)
        snapshot = replace(await self._snapshot(seen, objects, acting), offer=wanted.offer)
        snapshot = replace(snapshot, routers=self._written.lists.see(snapshot.routers, now=monotonic()))
        # From here to `decided` nothing is waited for, or two pools could take the same replicas of a budget.
        snapshot = replace(snapshot, claims=self._budgets.claims(self.key))
        try:
            plan = decide(snapshot)
        except Exception as error:
            return await self._hold(seen, objects, self._defect(error), acting, pools=pools)
        self._steps.succeeded(Step.DECISION)
        carrying = self._carrying(pool, objects, pools=pools)
        self._oriented = self._oriented or not self._observer.is_waiting_for_first_answers
        if acting is not Acting.FULL or not self._oriented:
            await carrying.restore_routers(plan)
            return Outcome.of(plan, changed=carrying.changed)
        self._budgets.decided(self.key, plan.status)
        await carrying.keep_lists(plan)
        await self._beside_the_lists(self._write(carrying, plan, wanted), seen, leaving={*plan.drain, *plan.retire})
        scoring_key = keys.pool if render.uses_key(pool) else None
        self._golden.measure(pool, snapshot.golden, plan.measure, key=scoring_key)
        await self._demands.remove_old(objects.leases, now=snapshot.now)
        METRICS.record_pool(pool, plan.status)
        log_scaling(pool.status, plan.status)
        for event in plan.events:
            if event.reason in _ROLLOUT_ENDS:
                METRICS.rollout_ended(*self.key, _ROLLOUT_ENDS[event.reason])
        return Outcome.of(plan, changed=carrying.changed)

    def _carrying(self, pool: RewardPool, objects: Objects, *, pools: int) -> Apply:
        return Apply(
            self._kube,
            self._store,
            pool,
            objects,
            written=self._written,
            router_admin=self._observer.router_admin,
            figures_seconds=seconds_between_figures(pools),
        )

    async def _read_secrets(self, objects: Objects, *, pools: int) -> None:
        """Read the Secrets if they may have changed."""
        if shows_a_deletion(objects.find("ConfigMap", names.pins_config_map(self.key[1])), objects.secrets):
            self._secrets.suspect()
        now = monotonic()
        waits = self._steps.pause(Step.SECRETS) > 0 and not self._secrets.pending
        if self._secrets.due(now, pools=pools) > 0 or waits or not await self._secrets.read(now):
            return
        self._came_to(Step.SECRETS, ConditionReason.SECRETS_UNREADABLE, self._secrets.problem)

    async def _look_at_certificate(self, pool: RewardPool, acting: Acting, *, pools: int) -> Tls:
        may_read = acting is Acting.FULL and self._steps.pause(Step.CERTIFICATE) == 0
        tls = await self._certificate.look(pool, now=monotonic(), pools=pools, may_read=may_read)
        if may_read:
            self._came_to(Step.CERTIFICATE, ConditionReason.CERTIFICATE_UNREADABLE, self._certificate.refused)
        return tls

    async def _snapshot(self, seen: Seen, objects: Objects, acting: Acting) -> Snapshot:
        """Everything that is to be seen; what cannot be read is as it was read last."""
        snapshot = await self._observer.snapshot(
            seen.pool, objects, keys=seen.keys, tls=seen.tls, revision=seen.revision
        )
        away = acting is not Acting.FULL
        snapshot = replace(
            snapshot,
            golden=await self._golden.golden(seen.pool, revision=seen.revision),
            announcements=await self._demands.look(objects.leases, now=snapshot.now, away=away),
        )
        self._came_to(Step.GOLDEN_SET, ConditionReason.GOLDEN_SET_UNREADABLE, self._golden.refused)
        self._came_to(Step.DEMANDS, ConditionReason.DEMANDS_UNREADABLE, self._demands.refused)
        return self._with_failures(self._keys.observed(snapshot))

    def _with_failures(self, snapshot: Snapshot, *, cause: Failure | None = None) -> Snapshot:
        """The snapshot with what fails now beside this cause."""
        self._decided_with = self._failures()
        others = [failure for failure in self._decided_with if cause is None or failure.reason != cause.reason]
        return replace(snapshot, failures=tuple(others))

    def _came_to(self, step: Step, reason: ConditionReason, problem: str | None) -> None:
        """What trying a step came to."""
        if problem is None:
            self._steps.succeeded(step)
            return
        METRICS.pass_failed("unreachable" if self._kube.is_away() else "refused")
        is_news = self._steps.failed(step, reason, problem)
        log.log(logging.WARNING if is_news else logging.DEBUG, "%s: %s", step, problem)

    def _defect(self, error: Exception, what: str = "deciding about the pool failed") -> Failure:
        """Whatever makes no sense to rendering or deciding must not keep the routers from their workers."""
        log.error(what, exc_info=error)
        METRICS.pass_failed("defect")
        self._steps.failed(Step.DECISION, ConditionReason.RECONCILE_FAILED, _in_words(error))
        return self._cause(Step.DECISION)

    def _cause(self, step: Step) -> Failure:
        return next(one.as_failure() for one in self._steps.failing if one.step is step)

    def _why_held(self, stored: StoredPool) -> Failure | None:
        """Why nothing but the routers' lists is kept; None when there is no cause for that."""
        if stored.problems:
            return Failure(reason=ConditionReason.INVALID_OBJECT.value, message="; ".join(stored.problems))
        return None if self._secrets.known else self._cause(Step.SECRETS)

    async def _without_keys(self, pool: RewardPool, objects: Objects, acting: Acting, *, pools: int) -> Outcome:
        """An operator that was started while Secrets cannot be read: no router can be asked, and that is told."""
        if acting is not Acting.FULL or self._secrets.problem is None:
            return Outcome.BUSY
        plan = hold(snapshot_without_routers(pool, objects), self._cause(Step.SECRETS), routers_asked=False)
        await self._tell(self._carrying(pool, objects, pools=pools), plan, held=True)
        METRICS.record_pool(pool, plan.status)
        return Outcome.BUSY

    async def _hold(self, seen: Seen, objects: Objects, cause: Failure, acting: Acting, *, pools: int) -> Outcome:
        """Keep the routers' lists, and tell why nothing else is done."""
        snapshot = await self._observer.snapshot(
            seen.pool, objects, keys=seen.keys, tls=seen.tls, revision=seen.revision
        )
        self._oriented = self._oriented or not self._observer.is_waiting_for_first_answers
        snapshot = replace(snapshot, routers=self._written.lists.see(snapshot.routers, now=monotonic()))
        plan = hold(self._with_failures(snapshot, cause=cause), cause)
        carrying = self._carrying(seen.pool, objects, pools=pools)
        if acting is not Acting.FULL or not self._oriented:
            await carrying.restore_routers(plan)
            return Outcome.BUSY
        await carrying.keep_lists(plan)
        await self._beside_the_lists(self._write_held(carrying, plan), seen, leaving=set())
        METRICS.record_pool(seen.pool, plan.status)
        return Outcome.BUSY

    async def _beside_the_lists(self, writing: Coroutine[Any, Any, None], seen: Seen, *, leaving: set[str]) -> None:
        """Write, and keep the routers' lists meanwhile: an API server that is slow holds up no router.

        Args:
            writing: what may take long.
            seen: as this pass saw it.
            leaving: workers, by name, that this pass took off the lists.
        """
        task = asyncio.ensure_future(writing)
        try:
            while not (await asyncio.wait({task}, timeout=BUSY_SECONDS))[0]:
                objects = self._store.objects(self.key)
                if objects is not None:
                    await self._keep_lists(seen, objects, leaving)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        task.result()

    async def _keep_lists(self, seen: Seen, objects: Objects, leaving: set[str]) -> None:
        snapshot = await self._observer.snapshot(
            seen.pool, objects, keys=seen.keys, tls=seen.tls, revision=seen.revision
        )
        kept = kept_lists(snapshot, barred=frozenset(leaving))
        plan = Plan(leaves=kept.leaves, joins=kept.joins, status=seen.pool.status)
        await self._carrying(seen.pool, objects, pools=1).keep_lists(plan)

    async def _write(self, carrying: Apply, plan: Plan, wanted: Rendered) -> None:
        """Everything of a plan but the lists, in steps that fail alone."""
        again = self._steps.pause(Step.OBJECTS) == 0
        try:
            await carrying.expose(plan)
            await carrying.bring_about(plan, wanted, may_write_secrets=self._secrets.current, again=again)
        except KubeUnreachableError as error:
            self._came_to(Step.OBJECTS, ConditionReason.API_SERVER_UNREACHABLE, str(error))
        else:
            if carrying.failures or not carrying.put_off:
                self._came_to(Step.OBJECTS, ConditionReason.APPLY_FAILED, "; ".join(carrying.failures) or None)
        await self._tell(carrying, plan)

    async def _write_held(self, carrying: Apply, plan: Plan) -> None:
        try:
            await carrying.expose(plan)
        except KubeUnreachableError as error:
            self._came_to(Step.OBJECTS, ConditionReason.API_SERVER_UNREACHABLE, str(error))
        await self._tell(carrying, plan, held=True)

    def _failures(self) -> tuple[Failure, ...]:
        """What fails, as the status tells it; an object that is refused at once, all else when it is no blip."""
        failing = [
            one.as_failure() for one in self._steps.failing if one.is_told or one.reason is ConditionReason.APPLY_FAILED
        ]
        unseen = self._unseen()
        if unseen is not None:
            failing.append(Failure(reason=ConditionReason.NAMESPACE_NOT_SERVED.value, message=unseen))
        return tuple(failing)

    async def _tell(self, carrying: Apply, plan: Plan, *, held: bool = False) -> None:
        may_write = self._steps.pause(Step.STATUS) == 0
        try:
            await carrying.tell(plan, write_status=may_write, held=held)
        except (KubeError, KubeUnreachableError) as error:
            self._came_to(Step.STATUS, ConditionReason.STATUS_NOT_WRITTEN, str(error))
        else:
            if may_write:
                self._came_to(Step.STATUS, ConditionReason.STATUS_NOT_WRITTEN, None)

    def _rendered_of(self, stored: StoredPool, *, keys: Keys, tls: Tls, pins: Mapping[str, str]) -> Rendered:
        """Everything the pool shall own, rendered anew when something changed that it is rendered from.

        Never from the status, which changes all the time.
        """
        inputs = (stored.declared, keys, tls, pins)
        if self._rendered is None or self._rendered[0] != inputs:
            wanted = rendered(stored.pool, keys, image=self._image, tls=tls, place=self._place, pins=pins)
            self._rendered = inputs, wanted
        return self._rendered[1]

    def _stored(self, found: Object) -> StoredPool:
        """The pool with its model, parsed once for each of its versions."""
        if self._parsed is None or self._parsed.object is not found:
            before, self._parsed = self._parsed, StoredPool.parse(found)
            problems = self._parsed.problems
            if problems and (before is None or before.problems != problems):
                log.warning("the stored pool is not valid, so its size stays as it is: %s", "; ".join(problems))
        return self._parsed

    def _pause(self, outcome: Outcome, *, scales: bool, pools: int) -> float:
        now = monotonic()
        if outcome is Outcome.QUIET:
            pace = seconds_until_next(quiet_for=now - self._busy_at, scales=scales, pools=pools)
        else:
            self._busy_at = now
            pace = AFTER_CHANGE_SECONDS if outcome is Outcome.CHANGED else BUSY_SECONDS
        due = BUSY_SECONDS if self._secrets.pending else self._secrets.due(now, pools=pools)
        return max(0.0, min(pace, max(due, self._steps.pause(Step.SECRETS)))) * _jitter()


def _in_words(error: Exception) -> str:
    """What a condition says of a defect: its kind. Its words may be of anybody's making."""
    return f"{type(error).__name__} in the operator; its log has more"


def _jitter() -> float:
    return random.uniform(0.8, 1.0)  # noqa: S311 - spreads passes, hides nothing
