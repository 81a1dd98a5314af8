"""One pool, kept as declared: what is remembered of it from pass to pass, and one pass: observe, decide, apply.

Level-triggered: a pass looks at all there is, whatever woke it. Passes of one pool never overlap (`queue.py`). Objects
come from the store, which watches fill; Secrets are read by name; routers are asked.
"""

import asyncio
import enum
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final, Self

import aiohttp
from pydantic import ValidationError

from rewardpool_api import names
from rewardpool_api.reasons import ConditionReason, EventReason
from rewardpool_operator.decide import decide
from rewardpool_operator.kubernetes import client, render
from rewardpool_operator.kubernetes.apply import Apply, Written
from rewardpool_operator.kubernetes.budgets import Budgets
from rewardpool_operator.kubernetes.cadence import BUSY_SECONDS, seconds_between_figures, seconds_until_next
from rewardpool_operator.kubernetes.client import Kube, KubeError, KubeUnreachableError, Object
from rewardpool_operator.kubernetes.credentials.key_keeper import KeyKeeper
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.secret_reader import SecretReader
from rewardpool_operator.kubernetes.credentials.tls import CertificateKeeper, Tls
from rewardpool_operator.kubernetes.credentials.witness import tells_of_a_loss
from rewardpool_operator.kubernetes.demands import Demands
from rewardpool_operator.kubernetes.leader import Acting
from rewardpool_operator.kubernetes.observe import Observer
from rewardpool_operator.kubernetes.place import OperatorPlace
from rewardpool_operator.kubernetes.questions.downloads import pins_of
from rewardpool_operator.kubernetes.questions.golden import GoldenKeeper
from rewardpool_operator.kubernetes.questions.trouble import Trouble
from rewardpool_operator.kubernetes.stored_pool import StoredPool
from rewardpool_operator.kubernetes.telling import log_scaling
from rewardpool_operator.kubernetes.turns import Turns
from rewardpool_operator.kubernetes.wanted import Rendered, left_running, rendered, routers_are_new
from rewardpool_operator.kubernetes.watch.objects import Objects
from rewardpool_operator.kubernetes.watch.store import Key, Store
from rewardpool_operator.logs import about
from rewardpool_operator.metrics import METRICS, Reason
from rewardpool_operator.metrics import Outcome as RolloutOutcome
from rewardpool_operator.plan import Plan

log = logging.getLogger(__name__)

AFTER_CHANGE_SECONDS: Final = 0.5
"""Until the next pass after one that wrote something: a step of a plan is often followed by another."""
LONGEST_BACKOFF_SECONDS: Final = 5.0
"""Between passes that fail, so that all is as declared soon after the trouble is over."""

_TOLD_BY_EVENTS: Final = (ConditionReason.SCALING, ConditionReason.UNSCHEDULABLE)
"""Reasons of Progressing whose end a pod tells by itself; a pool may have them for days."""
_ROLLOUT_ENDS: Final[Mapping[str, RolloutOutcome]] = {
    EventReason.ROLLOUT_COMPLETED: "completed",
    EventReason.ROLLED_BACK: "rolled_back",
}


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the keepers of all pools share."""

    kube: Kube
    session: aiohttp.ClientSession
    store: Store
    image: str
    """RewardPool's own."""
    place: OperatorPlace | None
    """Where this operator runs; None outside of the cluster."""
    aside: asyncio.Semaphore
    """Bounds what is asked aside at a time."""
    budgets: Budgets
    turns: Turns
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
    REFUSED = enum.auto()
    """Something could not be written."""

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


class Keeper:
    """Keeps one pool.

    Args:
        shared: with the keepers of other pools.
        key: of the pool.
        wake: has a pass made soon.
    """

    def __init__(self, shared: Shared, key: Key, *, wake: Callable[[], None]) -> None:
        self.key = key
        self._kube = shared.kube
        self._store = shared.store
        self._budgets = shared.budgets
        self._turns = shared.turns
        self._unseen = partial(shared.unseen, key[0])
        self._image = shared.image
        self._place = shared.place
        self._observer = Observer(shared.session, news=wake, aside=shared.aside)
        self._trouble = Trouble(shared.kube, news=wake, aside=shared.aside)
        self._golden = GoldenKeeper(
            shared.kube,
            shared.session,
            keep=partial(shared.store.put, client.DEPLOYMENTS),
            news=wake,
            aside=shared.aside,
        )
        self._secrets = SecretReader(shared.kube, shared.store, key)
        self._certificate = CertificateKeeper(shared.kube)
        self._demands = Demands(shared.kube, shared.store)
        self._written = Written()
        self._keys = KeyKeeper(shared.session, aside=shared.aside)
        self._parsed: tuple[Object, StoredPool | None] | None = None
        self._rendered: tuple[object, Rendered] | None = None
        self._busy_at = monotonic()
        self._failures = 0
        self._oriented = False
        """Whether every router was heard, or is known to be silent, since this operator began."""

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
            return await self._look(objects, acting, pools=pools)

    async def _look(self, objects: Objects, acting: Acting, *, pools: int) -> float:
        try:
            outcome = await self._pass(objects, acting, pools=pools)
        except KubeUnreachableError as error:
            return self._failed_because("unreachable", str(error))
        except KubeError as error:
            return self._failed_because("refused", str(error))
        except Exception:
            # A defect in one pass over one pool must not end the care for it; the log has all of it.
            log.exception("a pass failed")
            return self._failed_because("defect", "the next one comes soon")
        if outcome is Outcome.REFUSED:
            return self._failed_because("refused", "not everything could be written")
        self._failures = 0
        if self._has_changed_since(objects.pool):
            outcome = Outcome.CHANGED
        return self._pause(outcome, scales="autoscaling" in objects.pool["spec"], pools=pools)

    def _has_changed_since(self, looked_at: Object) -> bool:
        """Whether another spec is known by now: the answer to the status' write tells of it before the watch does."""
        now = self._store.pool(self.key)
        return now is not None and now["metadata"].get("generation") != looked_at["metadata"].get("generation")

    def close(self) -> None:
        """Stop asking."""
        self._observer.close()
        self._trouble.close()
        self._golden.close()

    async def _pass(self, objects: Objects, acting: Acting, *, pools: int) -> Outcome:
        if acting is Acting.FULL:
            acting = await self._read_secrets(objects, pools=pools)
            # What came meanwhile is looked at in this pass, and what comes from here on in the next one: everything
            # below is made of this one version of the pool.
            objects = self._store.objects(self.key) or objects
            objects = replace(objects, trouble=self._trouble.notes(objects))
        stored = self._stored(objects.pool)
        if stored is None or "deletionTimestamp" in objects.pool["metadata"]:
            # Owner references take everything away; writing now would only make it anew.
            return Outcome.QUIET
        pool = self._written.as_decided(stored.pool, objects.pool.get("status") or {})
        if not self._secrets.known:
            return Outcome.QUIET
        keys = await self._keys.look(pool, objects, may_change=acting is Acting.FULL and self._oriented)
        tls = await self._certificate.look(pool, now=monotonic(), pools=pools, may_read=acting is Acting.FULL)
        if tls is None:
            return Outcome.QUIET
        pins = pins_of(pool, objects)
        wanted = self._rendered_of(stored, keys=keys, tls=tls, pins=pins)
        wanted = left_running(wanted, pool, objects, may_upgrade=partial(self._turns.take, self.key))
        if self._turns.holds(self.key) and routers_are_new(wanted, objects):
            self._turns.end(self.key)
        revision = wanted.revision.name
        snapshot = await self._observer.snapshot(pool, objects, keys=keys, tls=tls, revision=revision)
        away = acting is not Acting.FULL
        snapshot = replace(
            snapshot,
            offer=wanted.offer,
            golden=await self._golden.golden(pool, revision=revision),
            announcements=await self._demands.look(objects.leases, now=snapshot.now, away=away),
        )
        snapshot = replace(snapshot, routers=self._written.lists.see(snapshot.routers, now=monotonic()))
        # From here to `decided` nothing is waited for, or two pools could take the same replicas of a budget.
        snapshot = replace(snapshot, claims=self._budgets.claims(self.key))
        plan = self._keys.told(decide(snapshot), pool)
        carrying = Apply(
            self._kube,
            self._store,
            pool,
            objects,
            written=self._written,
            router_admin=self._observer.router_admin,
            figures_seconds=seconds_between_figures(pools),
            unseen=self._unseen(),
        )
        self._oriented = self._oriented or not self._observer.is_waiting_for_first_answers
        if acting is not Acting.FULL or not self._oriented:
            await carrying.restore_routers(plan)
            return Outcome.of(plan, changed=carrying.changed)
        self._budgets.decided(self.key, plan.status)
        await carrying.all_of(plan, wanted)
        scoring_key = keys.pool if render.uses_key(pool) else None
        self._golden.measure(pool, snapshot.golden, plan.measure, key=scoring_key)
        await self._demands.remove_old(objects.leases, now=snapshot.now)
        METRICS.record_pool(pool, plan.status)
        log_scaling(pool.status, plan.status)
        for event in plan.events:
            if event.reason in _ROLLOUT_ENDS:
                METRICS.rollout_ended(*self.key, _ROLLOUT_ENDS[event.reason])
        return Outcome.REFUSED if carrying.failures else Outcome.of(plan, changed=carrying.changed)

    async def _read_secrets(self, objects: Objects, *, pools: int) -> Acting:
        """Read the Secrets if they may have changed; what may be done, now that it was tried."""
        if tells_of_a_loss(objects.find("ConfigMap", names.pins_config_map(self.key[1])), objects.secrets):
            self._secrets.suspect()
        if self._secrets.due(monotonic(), pools=pools) > 0:
            return Acting.FULL
        try:
            await self._secrets.read(monotonic())
        except KubeUnreachableError as error:
            if not self._secrets.known:
                raise
            log.warning("its routers are kept right: %s", error)
            return Acting.ROUTERS
        return Acting.FULL

    def _rendered_of(self, stored: StoredPool, *, keys: Keys, tls: Tls, pins: Mapping[str, str]) -> Rendered:
        """Everything the pool shall own, rendered anew when something changed that it is rendered from.

        Never from the status, which changes all the time.
        """
        inputs = (stored.declared, keys, tls, pins)
        if self._rendered is None or self._rendered[0] != inputs:
            wanted = rendered(stored.pool, keys, image=self._image, tls=tls, place=self._place, pins=pins)
            self._rendered = inputs, wanted
        return self._rendered[1]

    def _stored(self, found: Object) -> StoredPool | None:
        """The pool with its model; one that an older CRD let through is told once and left alone."""
        if self._parsed is None or self._parsed[0] is not found:
            try:
                self._parsed = found, StoredPool.parse(found)
            except ValidationError as error:
                log.warning("it is left alone, since it is no valid pool: %s", error)
                self._parsed = found, None
        return self._parsed[1]

    def _pause(self, outcome: Outcome, *, scales: bool, pools: int) -> float:
        now = monotonic()
        if outcome is Outcome.QUIET:
            pace = seconds_until_next(quiet_for=now - self._busy_at, scales=scales, pools=pools)
        else:
            self._busy_at = now
            pace = AFTER_CHANGE_SECONDS if outcome is Outcome.CHANGED else BUSY_SECONDS
        return max(0.0, min(pace, self._secrets.due(now, pools=pools))) * _jitter()

    def _failed_because(self, reason: Reason, words: str) -> float:
        self._failures += 1
        self._busy_at = monotonic()
        self._secrets.suspect()
        METRICS.pass_failed(reason)
        log.log(logging.WARNING if self._failures == 1 else logging.DEBUG, "%s: %s", reason, words)
        # While the API server is away no longer pauses: meanwhile the routers are kept right.
        longest = BUSY_SECONDS if reason == "unreachable" else LONGEST_BACKOFF_SECONDS
        return min(longest, 0.5 * float(2 ** min(self._failures, 8))) * _jitter()


def _jitter() -> float:
    return random.uniform(0.8, 1.0)  # noqa: S311 - spreads passes, hides nothing
