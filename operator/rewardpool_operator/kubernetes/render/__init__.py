"""From a pool to the objects it owns: pure functions.

shared.py   Secret POOL-key             the key of the data plane, for trainers
            Secret POOL-router-admin    the key of the routers' worker lists, for operator and routers
            Secret POOL-gateway         the key that the gateway's callers present
            ConfigMap rewardpool-files-HASH  of the namespace: the files that make a stock image a worker or a router
            ConfigMap POOL-pins         which commit of its model each revision serves
router.py   Service POOL-router         the URL of the pool
            Deployment POOL-router      the routers
gateway.py  Service POOL-gateway        the URL of the gateway, where the pool has one
            Deployment POOL-gateway     the gateways
worker.py   Deployment POOL-worker-REV  the workers of one revision (as sandboxes: `workload/sandboxes.py`)
policies.py NetworkPolicies of all of them, and PodDisruptionBudgets of workers, routers and gateways
download.py what puts a downloaded model into the workers' pods
common.py   what they have in common: labels, owner, the shape of every pod
"""

from rewardpool_operator.kubernetes.render.common import owner_references
from rewardpool_operator.kubernetes.render.gateway import gateway_deployment, gateway_service
from rewardpool_operator.kubernetes.render.policies import (
    disruption_budget_name,
    disruption_budgets,
    network_policies,
    protecting,
)
from rewardpool_operator.kubernetes.render.router import router_deployment, router_service
from rewardpool_operator.kubernetes.render.shared import files_config_map, pins_config_map, pool_host, pool_url, secrets
from rewardpool_operator.kubernetes.render.worker import (
    Revision,
    worker_deployment,
    worker_revision,
    worker_template,
)

__all__ = [
    "Revision",
    "disruption_budget_name",
    "disruption_budgets",
    "files_config_map",
    "gateway_deployment",
    "gateway_service",
    "network_policies",
    "owner_references",
    "pins_config_map",
    "pool_host",
    "pool_url",
    "protecting",
    "router_deployment",
    "router_service",
    "secrets",
    "worker_deployment",
    "worker_revision",
    "worker_template",
]
