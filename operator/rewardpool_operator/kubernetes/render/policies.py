"""NetworkPolicies and PodDisruptionBudgets of a pool's pods.

    NetworkPolicy POOL-worker           from the pool's routers and the operator alone
    NetworkPolicy POOL-router           scores from the namespaces that may, metrics for those who monitor
    NetworkPolicy POOL-gateway          from the namespaces that may score, and those who monitor
    PodDisruptionBudget POOL-worker     of those that serve, of all revisions together, one at a time
    PodDisruptionBudget POOL-router     of those that serve, one at a time
    PodDisruptionBudget POOL-gateway    the same

What pods connect to is not restricted: engines download models from wherever the user says. Policies take a network
plugin that enforces them; where there is none, they are words.
"""

from collections.abc import Mapping
from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.render.common import labels, metadata
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def disruption_budgets(pool: RewardPool) -> list[Object]:
    """Voluntary disruptions, such as the drain of a node, take one worker, one router and one gateway at a time."""
    components = [names.COMPONENT_WORKER, names.COMPONENT_ROUTER]
    components += [] if pool.spec.gateway is None else [names.COMPONENT_GATEWAY]
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(pool, disruption_budget_name(pool, component), component),
            "spec": {
                # Or a pool of one replica would block its node's drain for ever. `protecting` puts in how many serve.
                "minAvailable": 0,
                "selector": {"matchLabels": labels(pool, component)},
                # One that does not answer protects nothing.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }
        for component in components
    ]


def disruption_budget_name(pool: RewardPool, component: str) -> str:
    """Name of the PodDisruptionBudget of workers, routers or gateways."""
    return f"{pool.metadata.name}-{component}"


def protecting(manifest: Object, protected: Mapping[str, int]) -> Object:
    """The manifest with all but one pod of its component protected, if it is a PodDisruptionBudget; else as it is."""
    if manifest["kind"] != "PodDisruptionBudget":
        return manifest
    # `maxUnavailable` counts from what is wanted: where nodes have room for half of that, no pod that serves could go.
    least = max(0, protected[manifest["metadata"]["labels"][names.LABEL_COMPONENT]] - 1)
    return {**manifest, "spec": {**manifest["spec"], "minAvailable": least}}


def network_policies(pool: RewardPool, identity: OperatorIdentity | None) -> list[Object]:
    """The policies; none where the pool wants none, or the operator is outside of the cluster and not to be named."""
    if identity is None or pool.spec.network.policy == "Disabled":
        return []
    monitoring = [_namespace(name) for name in identity.monitoring]
    worker = [_rule(names.WORKER_PORT, [_routers(pool), _operator(identity), *monitoring])]
    router = [
        _rule(names.ROUTER_PORT, _scorers(pool, identity)),
        _rule(
            names.ROUTER_METRICS_PORT, [_operator(identity), *monitoring] if monitoring else [{"namespaceSelector": {}}]
        ),
    ]
    policies = [
        _policy(pool, names.COMPONENT_WORKER, worker),
        _policy(pool, names.COMPONENT_ROUTER, router),
    ]
    if pool.spec.gateway is not None:
        scorers = _scorers(pool, identity)
        gateway = [_rule(names.GATEWAY_PORT, scorers and [*scorers, *monitoring])]
        policies.append(_policy(pool, names.COMPONENT_GATEWAY, gateway))
    return policies


def _policy(pool: RewardPool, component: str, ingress: list[Object]) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(pool, f"{pool.metadata.name}-{component}", component),
        "spec": {
            "podSelector": {"matchLabels": labels(pool, component)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _rule(port: int, peers: list[Object]) -> Object:
    """Connections to one port; no peer at all stands for everybody, also outside of the cluster."""
    return {"ports": [{"port": port, "protocol": "TCP"}], **({"from": peers} if peers else {})}


def _scorers(pool: RewardPool, identity: OperatorIdentity) -> list[Object]:
    if pool.spec.network.policy == "OpenRouters":
        return []
    own: Object = {"podSelector": {}}
    return [own, _operator(identity), *(_namespace(name) for name in pool.spec.network.namespaces)]


def _routers(pool: RewardPool) -> Object:
    return {"podSelector": {"matchLabels": labels(pool, names.COMPONENT_ROUTER)}}


def _operator(identity: OperatorIdentity) -> Object:
    pods = {"podSelector": {"matchLabels": dict(identity.labels)}} if identity.labels else {}
    return {**_namespace(identity.namespace), **pods}


def _namespace(name: str) -> Object:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: name}}}
