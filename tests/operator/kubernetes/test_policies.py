"""Network policies and disruption budgets as rendered; the API server takes them in test_pod_security.py."""

from typing import Any

import pytest
from pydantic import ValidationError
from support.kube_builders import a_pool

from rewardpool_api import names
from rewardpool_operator.kubernetes.render import policies
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity

IDENTITY = OperatorIdentity(namespace="system", labels={"app": "operator"})
OPERATOR = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "system"}},
    "podSelector": {"matchLabels": {"app": "operator"}},
}
ROUTERS = {"podSelector": {"matchLabels": {names.LABEL_POOL: "rm", names.LABEL_COMPONENT: "router"}}}


def a_namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def sources(component: str, port: int, identity: OperatorIdentity = IDENTITY, **network: Any) -> Any:
    """Who may connect to that port; None for everybody."""
    teacher = {"source": "hf://org/model", "type": "Teacher"}
    rendered = policies.network_policies(a_pool(model=teacher, gateway={}, network=network), identity)
    (policy,) = (item for item in rendered if item["metadata"]["name"] == f"rm-{component}")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    (rule,) = (rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == port)
    return rule.get("from")


def test_workers_take_connections_from_their_routers_and_the_operator_alone() -> None:
    assert sources("worker", 8000) == [ROUTERS, OPERATOR]


def test_by_default_only_the_pools_own_namespace_and_the_operator_reach_the_router() -> None:
    assert sources("router", 8080) == [{"podSelector": {}}, OPERATOR]


def test_namespaces_that_are_named_reach_the_router_as_well() -> None:
    assert sources("router", 8080, namespaces=["train"]) == [{"podSelector": {}}, OPERATOR, a_namespace("train")]


def test_where_routers_are_to_be_open_the_key_alone_decides_who_scores() -> None:
    assert sources("router", 8080, policy="OpenRouters") is None
    assert sources("worker", 8000, policy="OpenRouters") == [ROUTERS, OPERATOR]


def test_who_may_score_reaches_the_gateway_and_so_does_who_monitors() -> None:
    identity = OperatorIdentity(namespace="system", monitoring=("monitoring",))
    scorers = [{"podSelector": {}}, a_namespace("system"), a_namespace("train")]
    assert sources("gateway", 5000, identity, namespaces=["train"]) == [*scorers, a_namespace("monitoring")]
    assert sources("gateway", 5000, identity, policy="OpenRouters") is None


def test_figures_are_for_the_whole_cluster_until_somebody_says_who_monitors() -> None:
    assert sources("router", 9090) == [{"namespaceSelector": {}}]


def test_who_monitors_reaches_the_figures_of_routers_and_workers() -> None:
    identity = OperatorIdentity(namespace="system", monitoring=("monitoring",))
    assert sources("router", 9090, identity) == [a_namespace("system"), a_namespace("monitoring")]
    assert sources("worker", 8000, identity)[-1] == a_namespace("monitoring")


def test_an_operator_outside_of_the_cluster_does_not_lock_itself_out() -> None:
    assert policies.network_policies(a_pool(), None) == []


def test_a_pool_that_wants_no_policies_has_none() -> None:
    assert policies.network_policies(a_pool(network={"policy": "Disabled"}), IDENTITY) == []


@pytest.mark.parametrize("policy", ["OpenRouters", "Disabled"])
def test_namespaces_that_nothing_would_restrict_are_refused(policy: str) -> None:
    with pytest.raises(ValidationError, match="nothing would restrict them"):
        a_pool(network={"policy": policy, "namespaces": ["train"]})


def test_a_drain_takes_one_worker_of_whatever_revision_and_is_never_blocked() -> None:
    worker, router = policies.disruption_budgets(a_pool())
    assert worker["spec"] == {
        "minAvailable": 0,
        "selector": {"matchLabels": {names.LABEL_POOL: "rm", names.LABEL_COMPONENT: "worker"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    assert router["spec"]["selector"]["matchLabels"][names.LABEL_COMPONENT] == "router"


@pytest.mark.parametrize(("serving", "least"), [(0, 0), (1, 0), (8, 7)])
def test_all_but_one_of_those_that_serve_are_protected(serving: int, least: int) -> None:
    teacher = {"source": "hf://org/model", "type": "Teacher"}
    worker, router, gateway = policies.disruption_budgets(a_pool(model=teacher, gateway={}))
    for budget, component in ((worker, "worker"), (router, "router"), (gateway, "gateway")):
        others = dict.fromkeys(("worker", "router", "gateway"), 9)
        assert policies.protecting(budget, {**others, component: serving})["spec"]["minAvailable"] == least
    assert policies.protecting({"kind": "Service"}, {}) == {"kind": "Service"}


def test_the_operators_place_is_read_from_its_environment() -> None:
    variables = {
        "POD_NAMESPACE": "system",
        "REWARDPOOL_OPERATOR_SELECTOR": "app.kubernetes.io/name=rewardpool-operator, app=x",
        "REWARDPOOL_MONITORING_NAMESPACES": "monitoring,metrics",
    }
    assert OperatorIdentity.from_environment(variables) == OperatorIdentity(
        namespace="system",
        labels={"app.kubernetes.io/name": "rewardpool-operator", "app": "x"},
        monitoring=("monitoring", "metrics"),
    )
    assert OperatorIdentity.from_environment({}) is None


@pytest.mark.parametrize(("host", "ipv6"), [("10.96.0.1", False), ("fd00::1", True), ("", False)])
def test_the_addresses_of_pods_are_those_of_the_api_servers_service(host: str, ipv6: bool) -> None:
    identity = OperatorIdentity.from_environment({"POD_NAMESPACE": "system", "KUBERNETES_SERVICE_HOST": host})
    assert identity is not None
    assert identity.ipv6 is ipv6


@pytest.mark.parametrize(
    ("variable", "value"),
    [("REWARDPOOL_OPERATOR_SELECTOR", "app"), ("REWARDPOOL_MONITORING_NAMESPACES", "Not A Name")],
)
def test_a_wrong_variable_is_named(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=variable):
        OperatorIdentity.from_environment({"POD_NAMESPACE": "system", variable: value})
