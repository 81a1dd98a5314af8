"""Budgets over namespaces: what may be set, and what becomes of pools."""

import json
from typing import Any

import pytest
from support.decide_builders import a_pool, a_router, a_snapshot, a_worker

from rewardpool_api import names
from rewardpool_control.decide import decide
from rewardpool_operator.kubernetes.settings.namespace_budgets import NamespaceBudgets

EXTERNAL = {"type": "External"}
QUEUE = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}}


def parsed(*budgets: dict[str, Any]) -> NamespaceBudgets:
    return NamespaceBudgets.from_environment({names.ENV_BUDGETS: json.dumps(budgets)})


def a_budget(name: str = "gpus", *, total: int = 4, **namespaces: int) -> dict[str, Any]:
    return {"name": name, "maxReplicas": total, "namespaces": namespaces or {"rl": 7}}


@pytest.mark.parametrize(
    "autoscaling",
    [
        {"maxReplicas": 8, "policy": QUEUE},
        {"maxReplicas": 8, "policy": QUEUE, "budget": {"name": "own", "maxReplicas": 100, "priority": 1000}},
        {"maxReplicas": 8, "policy": QUEUE, "parked": 2},
    ],
)
def test_no_pool_of_the_namespace_has_another_budget(autoscaling: dict[str, Any]) -> None:
    scaling = parsed(a_budget()).bound(a_pool(autoscaling=autoscaling, worker={"gpus": 0})).spec.autoscaling
    assert scaling is not None
    assert scaling.budget is not None
    assert (scaling.budget.name, scaling.budget.max_replicas, scaling.budget.priority) == ("gpus", 4, 7)
    assert (scaling.max_replicas, scaling.parked) == (8, 0)


@pytest.mark.parametrize(
    ("replicas", "desired", "limit"), [(9, 4, "Budget"), (3, 3, None), (0, 0, None), (None, 1, None)]
)
def test_a_fixed_number_of_replicas_is_bound_too(replicas: int | None, desired: int, limit: str | None) -> None:
    pool = parsed(a_budget()).bound(a_pool(replicas=replicas))
    scaling = decide(a_snapshot(a_worker("w0"), pool=pool, routers=(a_router(),))).status.scaling
    assert scaling is not None
    assert (scaling.desired, scaling.limit) == (desired, limit)


def test_a_pool_of_another_namespace_is_as_it_says() -> None:
    pool = a_pool(replicas=9)
    assert parsed(a_budget(lab=0)).bound(pool) is pool


@pytest.mark.parametrize(
    ("budgets", "said"),
    [
        ([a_budget(total=0)], "0.maxReplicas: Input should be greater than or equal to 1"),
        ([{**a_budget(), "namespaces": {}}], "0.namespaces"),
        ([{**a_budget(), "shares": 1}], "0.shares"),
        ([a_budget(rl=2000)], "0.namespaces.rl: Input should be less than or equal to 1000"),
        ([a_budget(), a_budget("more")], "the namespace rl is in several of them; name it in one"),
        ([a_budget(), a_budget(lab=0)], "several have the same name; give each its own"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_by_its_path(budgets: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValueError, match=r"REWARDPOOL_BUDGETS \(the chart's budgets\)") as refused:
        parsed(*budgets)
    assert said in str(refused.value)
