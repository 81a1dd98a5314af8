"""Budgets over namespaces, as whoever installs the operator sets them: the chart's value `budgets`.

They are a setting of the operator and part of no pool, so that a team can neither raise one nor leave it: they bind
every pool of their namespaces, one without autoscaling too. What a pool says of a budget itself does not count there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Self

from pydantic import Field, TypeAdapter, ValidationError

from rewardpool_api import RewardPool, names
from rewardpool_api.autoscaling import AutoscalingSpec, BudgetSpec, PolicySpec, Replicas
from rewardpool_api.rules import ApiModel
from rewardpool_operator.kubernetes.settings.pool_defaults import Name


class NamespaceBudget(ApiModel):
    """Replicas that all pools of some namespaces share."""

    name: Name
    max_replicas: Replicas
    namespaces: Annotated[dict[Name, Annotated[int, Field(ge=-1000, le=1000)]], Field(min_length=1)]
    """With the priority of their pools."""


_PARSED: Final = TypeAdapter(tuple[NamespaceBudget, ...])


@dataclass(frozen=True)
class NamespaceBudgets:
    """Budgets over namespaces."""

    _by_namespace: Mapping[str, BudgetSpec] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Return the budgets in the operator's environment; empty where it has none.

        Raises:
            ValueError: they make no sense; the text names each field by its path.
        """
        where = f"{names.ENV_BUDGETS} (the chart's budgets)"
        try:
            budgets = _PARSED.validate_json(environ.get(names.ENV_BUDGETS) or "[]")
        except ValidationError as error:
            found = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
            raise ValueError(f"{where}: {'; '.join(f'{path}: {message}' for path, message in found)}") from None
        by_namespace: dict[str, BudgetSpec] = {}
        for budget in budgets:
            for namespace, priority in budget.namespaces.items():
                if namespace in by_namespace:
                    raise ValueError(f"{where}: the namespace {namespace} is in several of them; name it in one")
                by_namespace[namespace] = BudgetSpec(
                    name=budget.name, max_replicas=budget.max_replicas, priority=priority
                )
        if len({budget.name for budget in budgets}) < len(budgets):
            raise ValueError(f"{where}: several have the same name; give each its own")
        return cls(by_namespace)

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def name_for(self, namespace: str) -> str | None:
        budget = self._by_namespace.get(namespace)
        return budget.name if budget else None

    def bound(self, pool: RewardPool) -> RewardPool:
        """Return the pool as its namespace's budget has it; the pool itself where there is none."""
        budget = self._by_namespace.get(pool.metadata.namespace or "")
        if budget is None:
            return pool
        spec = pool.spec
        replicas = 1 if spec.replicas is None else spec.replicas
        # A fixed number is bound as one that another program writes.
        scaling = spec.autoscaling or AutoscalingSpec(
            min_replicas=0, max_replicas=max(1, replicas), policy=PolicySpec(type="External")
        )
        # A parked replica would be nobody's share.
        changed: dict[str, object] = {"autoscaling": scaling.model_copy(update={"budget": budget, "parked": 0})}
        if spec.autoscaling is None:
            changed |= {"replicas": replicas}
        return pool.model_copy(update={"spec": spec.model_copy(update=changed)})


NO_BUDGETS: Final = NamespaceBudgets()
