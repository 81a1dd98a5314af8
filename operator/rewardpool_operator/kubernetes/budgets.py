"""Budgets: the pools that share one, and the claim of each, from their objects in the store, without a request.

What a pool wants is in its status. What it holds is counted: its pods and what its Deployments declare, so an operator
that takes over in the middle of a step of another one knows it too. Between a decision and its first write this process
alone knows; `decided` is called at once, and so no two passes can give the same room away.

    one pool's pass ends ─> its claim is another ─> passes of all other pools of the budget
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import ValidationError

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_control.autoscaler import budget
from rewardpool_control.autoscaler.signals import Claim
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.store import Key, Store
from rewardpool_operator.kubernetes.settings.namespace_budgets import NO_BUDGETS, NamespaceBudgets
from rewardpool_operator.left_out import with_sane_status

Budget = tuple[str | None, str]
"""Name of a budget, behind its namespace; of one over namespaces behind None."""


class Budgets:
    """The budgets of all pools."""

    def __init__(
        self,
        store: Store,
        *,
        over_namespaces: NamespaceBudgets = NO_BUDGETS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._over_namespaces = over_namespaces
        self._clock = clock
        self._decided: dict[Key, int] = {}
        self._claimed: dict[Key, tuple[Budget, Claim]] = {}
        self._parsed: dict[Key, tuple[Object, RewardPool | None]] = {}

    def bound(self, pool: RewardPool) -> RewardPool:
        """Return the pool as a budget over its namespace has it; see `NamespaceBudgets.bound`."""
        return self._over_namespaces.bound(pool)

    def claims(self, key: Key) -> tuple[Claim, ...]:
        budget = self._budget_of(key)
        if budget is None:
            return ()
        found = (self._claim(other) for other in self._members(budget) if other != key)
        return tuple(claim for claim in found if claim is not None)

    def decided(self, key: Key, status: RewardPoolStatus) -> None:
        """Record the pool's status of this pass, before it is carried out and written."""
        self._decided[key] = status.scaling.desired if status.scaling else 0

    def woken_by(self, key: Key) -> list[Key]:
        """The other pools of the budget, where the pool's claim is another than at the last call."""
        before, now = self._claimed.pop(key, None), self._named_claim(key)
        if now is not None:
            self._claimed[key] = now
        if now == before:
            return []
        budgets = {budget for budget, _ in filter(None, (before, now))}
        return [other for budget in budgets for other in self._members(budget) if other != key]

    def forget(self, key: Key) -> None:
        self._decided.pop(key, None)
        self._parsed.pop(key, None)

    def _members(self, budget: Budget) -> list[Key]:
        return [key for key in self._store.pools() if self._budget_of(key) == budget]

    def _budget_of(self, key: Key) -> Budget | None:
        pool = self._store.pool(key)
        if pool is None:
            return None
        over = self._over_namespaces.name_for(key[0])
        if over is not None:
            return None, over
        own = (pool["spec"].get("autoscaling") or {}).get("budget") or {}
        return (key[0], own["name"]) if own.get("name") else None

    def _named_claim(self, key: Key) -> tuple[Budget, Claim] | None:
        """Budget and claim, as far as others are to know: that a while has passed they notice by themselves."""
        budget = self._budget_of(key)
        claim = self._claim(key) if budget is not None else None
        return (budget, replace(claim, yielded=False)) if budget is not None and claim is not None else None

    def _claim(self, key: Key) -> Claim | None:
        objects = self._store.objects(key)
        pool = self._pool_of(key, objects.pool) if objects is not None else None
        if objects is None or pool is None:
            return None
        return claim_of(pool, objects, decided=self._decided.get(key, 0), now=self._clock())

    def _pool_of(self, key: Key, found: Object) -> RewardPool | None:
        """The pool as its budget has it, parsed once for each of its versions; None for one that is left alone."""
        known = self._parsed.get(key)
        if known is None or known[0] is not found:
            try:
                sane = with_sane_status(found, now=datetime.now(UTC))
                known = found, self.bound(RewardPool.model_validate(sane, extra="ignore"))
            except ValidationError:
                known = found, None
            self._parsed[key] = known
        return known[1]


def claim_of(pool: RewardPool, objects: Objects, *, decided: int, now: datetime) -> Claim | None:
    """Return a pool's claim on its budget, None where it has none; `decided` may not be in the status yet."""
    scaling = pool.spec.autoscaling
    if scaling is None or scaling.budget is None:
        return None
    pods = objects.pods_of(names.COMPONENT_WORKER)
    ending = sum("deletionTimestamp" in pod["metadata"] for pod in pods)
    declared = sum(deployment["spec"].get("replicas", 1) for deployment in objects.worker_deployments())
    over = pool.spec.suspend or pool.metadata.deletion_timestamp is not None
    wanted = 0 if over else budget.wanted_without(scaling, pool.status.scaling)
    decision = pool.status.scaling
    return budget.claim(
        pool=f"{pool.metadata.namespace}/{pool.metadata.name}",
        scaling=scaling,
        budget=scaling.budget,
        wanted=wanted,
        there=max(len(pods) - ending, declared),
        decided=max(decision.desired if decision else 0, decided),
        ending=ending,
        stalled=budget.is_stalled(pool.status.demands, load=pool.status.load, serving=pool.status.ready_replicas),
        history=decision.history if decision else (),
        now=now,
    )
