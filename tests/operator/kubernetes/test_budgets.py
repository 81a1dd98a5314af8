"""What pools of a budget know of each other, by a store that was filled by hand."""

from typing import Any

import pytest
from support.decide_builders import NOW
from support.kube_builders import a_pod

from rewardpool_api import RewardPoolStatus, names
from rewardpool_api.autoscaling import BudgetSpec
from rewardpool_kube import resources
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.budgets import Budgets
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.settings.namespace_budgets import NamespaceBudgets

MINE, OTHER = ("rl", "mine"), ("rl", "other")
OF_TEAMS = BudgetSpec(name="all", max_replicas=9)
OVER_NAMESPACES = NamespaceBudgets({"team-a": OF_TEAMS, "team-b": OF_TEAMS})
QUEUE_DEPTH = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}}


class Namespace:
    """A store, into which objects are put in ever newer versions."""

    def __init__(self) -> None:
        self.store = Store()
        self.budgets = Budgets(self.store, over_namespaces=OVER_NAMESPACES, clock=lambda: NOW)
        self._version = 0
        self.pool("mine")

    def pool(
        self,
        name: str,
        *,
        namespace: str = "rl",
        budget: dict[str, Any] | None = None,
        status: dict[str, Any] | None = None,
        suspend: bool = False,
        **scaling: Any,
    ) -> None:
        shared = {"name": "gpus", "maxReplicas": 4} if budget is None else budget
        autoscaling = {"minReplicas": 0, "maxReplicas": 8, "policy": QUEUE_DEPTH, "budget": shared, **scaling}
        spec = {"model": {"source": "hf://org/model"}, "suspend": suspend, "autoscaling": autoscaling}
        found = {"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": spec, "status": status or {}}
        self.put(resources.POOLS, found)

    def pod(self, pool: str, name: str, **metadata: Any) -> None:
        pod = a_pod(name)
        pod["metadata"] |= {"namespace": "rl", **metadata}
        pod["metadata"]["labels"][names.LABEL_POOL] = pool
        self.put(resources.PODS, pod)

    def deployment(self, pool: str, replicas: int) -> None:
        labels = {names.LABEL_POOL: pool, names.LABEL_REVISION: "new"}
        metadata: Object = {"name": f"{pool}-worker-new", "namespace": "rl", "labels": labels}
        metadata["ownerReferences"] = [{"kind": names.KIND, "name": pool, "uid": pool, "controller": True}]
        self.put(resources.DEPLOYMENTS, {"metadata": metadata, "spec": {"replicas": replicas}})

    def put(self, resource: resources.Resource, found: Object) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self.store.put(resource, found)

    def claim(self) -> Any:
        """The only one that the pool `mine` sees."""
        (claim,) = self.budgets.claims(MINE)
        return claim


@pytest.fixture
def namespace() -> Namespace:
    return Namespace()


def scaled(desired: int, **scaling: Any) -> dict[str, Any]:
    """A status with this decision."""
    return {"scaling": {"desired": desired, "reason": "", **scaling}}


def test_only_pools_of_the_same_budget_and_namespace_are_seen(namespace: Namespace) -> None:
    namespace.pool("other")
    namespace.pool("elsewhere", namespace="lab")
    namespace.pool("another", budget={"name": "cpus", "maxReplicas": 4})
    assert [claim.pool for claim in namespace.budgets.claims(MINE)] == ["rl/other"]


def test_pools_of_a_budget_over_namespaces_see_each_other_whatever_they_say_of_budgets(namespace: Namespace) -> None:
    namespace.pool("one", namespace="team-a")
    namespace.pool("two", namespace="team-a", budget={"name": "own", "maxReplicas": 100})
    namespace.pool("three", namespace="team-b")
    claims = namespace.budgets.claims(("team-a", "one"))
    assert sorted((claim.pool, claim.total) for claim in claims) == [("team-a/two", 9), ("team-b/three", 9)]


def test_a_claim_wakes_pools_of_the_other_namespaces(namespace: Namespace) -> None:
    for team in ("team-a", "team-b"):
        namespace.pool("one", namespace=team)
    assert namespace.budgets.woken_by(("team-a", "one")) == [("team-b", "one")]


def test_a_pool_without_a_budget_sees_nobody(namespace: Namespace) -> None:
    namespace.pool("other")
    namespace.pool("mine", budget={})
    assert namespace.budgets.claims(MINE) == ()


def test_a_claim_tells_what_the_pool_states(namespace: Namespace) -> None:
    namespace.pool("other", budget={"name": "gpus", "maxReplicas": 6, "priority": 3}, minReplicas=2)
    claim = namespace.claim()
    assert (claim.total, claim.priority, claim.wanted, claim.minimum) == (6, 3, 2, 2)


def test_what_a_pool_wants_is_what_it_decided(namespace: Namespace) -> None:
    namespace.pool("other", status=scaled(3, recommended_replicas=7, limit="Step"))
    assert namespace.claim().wanted == 3


@pytest.mark.parametrize(("asked", "wanted"), [(7, 7), (100, 8), (1, 3)])
def test_what_a_pool_wants_that_has_less_by_its_budget_is_what_it_asked_for(
    namespace: Namespace, asked: int, wanted: int
) -> None:
    namespace.pool("other", status=scaled(2, recommended_replicas=asked, limit="Budget"))
    assert namespace.claim().wanted == wanted


def test_a_suspended_pool_wants_nothing_and_holds_what_is_still_there(namespace: Namespace) -> None:
    namespace.pool("other", suspend=True, minReplicas=2, status=scaled(0))
    namespace.pod("other", "w0")
    claim = namespace.claim()
    assert (claim.wanted, claim.minimum, claim.allocated) == (0, 0, 1)


def test_a_deleted_pool_claims_nothing(namespace: Namespace) -> None:
    namespace.pool("other", status=scaled(2))
    namespace.store.forget(resources.POOLS, *OTHER)
    assert namespace.budgets.claims(MINE) == ()


def test_a_pool_holds_its_pods_and_those_that_end(namespace: Namespace) -> None:
    namespace.pool("other", status=scaled(1))
    namespace.pod("other", "w0")
    namespace.pod("other", "w1", deletionTimestamp="2026-01-01T12:00:00Z")
    claim = namespace.claim()
    assert (claim.allocated, claim.ending) == (2, 1)


def test_a_pool_holds_what_its_deployments_declare_before_there_are_pods(namespace: Namespace) -> None:
    namespace.pool("other", status=scaled(1))
    namespace.deployment("other", 3)
    assert namespace.claim().allocated == 3


def test_a_pool_holds_what_was_decided_before_anything_is_written(namespace: Namespace) -> None:
    namespace.pool("other", status=scaled(1))
    namespace.budgets.decided(OTHER, RewardPoolStatus.model_validate(scaled(4)))
    assert namespace.claim().allocated == 4
    namespace.budgets.decided(OTHER, RewardPoolStatus.model_validate(scaled(2)))
    assert namespace.claim().allocated == 2


@pytest.mark.parametrize(
    ("status", "stalled"),
    [
        ({"demands": [{"job": "grpo", "state": "Live", "stalled": True}]}, True),
        ({"demands": [{"job": "grpo", "state": "Lapsed", "stalled": True}]}, False),
        ({"load": {"waiting": 1}}, True),
        ({"load": {"waiting": 1}, "readyReplicas": 1}, False),
        ({}, False),
    ],
)
def test_a_trainer_waits_by_its_word_or_since_nobody_answers(
    namespace: Namespace, status: dict[str, Any], stalled: bool
) -> None:
    namespace.pool("other", status=status)
    assert namespace.claim().stalled is stalled


def test_a_pool_from_which_the_budget_took_lately_has_yielded(namespace: Namespace) -> None:
    change = {"reason": "", "time": "2026-01-01T11:59:50Z"}
    history = [{**change, "replicas": 4}, {**change, "replicas": 1, "limit": "Budget"}]
    namespace.pool("other", status=scaled(1, history=history))
    assert namespace.claim().yielded


def test_another_claim_wakes_the_other_pools_once(namespace: Namespace) -> None:
    namespace.pool("other", status=scaled(1))
    namespace.budgets.woken_by(MINE)
    assert namespace.budgets.woken_by(OTHER) == [MINE]
    assert namespace.budgets.woken_by(OTHER) == []
    namespace.pool("other", status=scaled(2))
    assert namespace.budgets.woken_by(OTHER) == [MINE]


def test_load_that_changes_nothing_wakes_nobody(namespace: Namespace) -> None:
    namespace.pool("other", status={**scaled(1), "load": {"inFlight": 1}})
    namespace.budgets.woken_by(OTHER)
    namespace.pool("other", status={**scaled(1), "load": {"inFlight": 2}})
    assert namespace.budgets.woken_by(OTHER) == []


def test_a_pool_that_leaves_its_budget_or_is_gone_wakes_those_that_stay(namespace: Namespace) -> None:
    namespace.pool("other", status=scaled(1))
    namespace.budgets.woken_by(OTHER)
    namespace.pool("other", budget={})
    assert namespace.budgets.woken_by(OTHER) == [MINE]
    namespace.pool("other")
    namespace.budgets.woken_by(OTHER)
    namespace.store.forget(resources.POOLS, *OTHER)
    assert namespace.budgets.woken_by(OTHER) == [MINE]


def test_a_pool_that_nobody_here_understands_claims_nothing(namespace: Namespace) -> None:
    namespace.pool("other", maxReplicas=-1)
    assert namespace.budgets.claims(MINE) == ()
