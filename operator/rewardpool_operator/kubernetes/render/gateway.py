"""The gateway: a Service, and a Deployment of `rewardpool gateway` in front of the routers.

It is a client like any other: it knows the routers' URL and the pool's key, and takes a key of its own, which trainers
write into URLs. It waits for no worker, so it is ready while the pool is at zero, and its first request starts one.
"""

from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_api.pool import GatewaySpec
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manifests.diff import short_hash
from rewardpool_operator.kubernetes.manifests.merge import merged
from rewardpool_operator.kubernetes.render.common import (
    GRACE_MARGIN_SECONDS,
    OWN_IMAGE,
    PRE_STOP_SECONDS,
    SURGE_FIRST,
    every_address,
    key_volume,
    labels,
    metadata,
    own_key_volume,
    pod_template,
    recommended_labels,
    service,
)
from rewardpool_operator.kubernetes.render.shared import pool_url
from rewardpool_operator.kubernetes.settings.pool_defaults import (
    NO_DEFAULTS,
    PoolDefaults,
    resources_of,
    resources_over,
)
from rewardpool_operator.kubernetes.workload.containers import CONTAINER_GATEWAY, PORT_HTTP

RESOURCES: Final[Object] = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    # A few answers of the longest, of 250 MB each.
    "limits": {"cpu": "4", "memory": "4Gi"},
}


def gateway_service(pool: RewardPool) -> Object:
    """The stable address in front of the gateways."""
    name = names.gateway_name(pool.metadata.name)
    return service(pool, name, names.COMPONENT_GATEWAY, port=names.GATEWAY_PORT)


def gateway_deployment(
    pool: RewardPool,
    gateway: GatewaySpec,
    *,
    key: str,
    image: str,
    ipv6: bool = False,
    defaults: PoolDefaults = NO_DEFAULTS,
) -> Object:
    """The gateways; a changed one is there before the old one goes."""
    name, own_labels = names.gateway_name(pool.metadata.name), labels(pool, names.COMPONENT_GATEWAY)
    template = merged(_template(pool, gateway, image, ipv6=ipv6, defaults=defaults), gateway.pod_template)
    owned = {"metadata": {"labels": own_labels, "annotations": {names.ANNOTATION_KEYS: short_hash([key])}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(pool, name, names.COMPONENT_GATEWAY),
        "spec": {
            "replicas": gateway.replicas,
            "selector": {"matchLabels": own_labels},
            "strategy": SURGE_FIRST,
            "template": merged(template, owned),
        },
    }


def _template(pool: RewardPool, gateway: GatewaySpec, image: str, *, ipv6: bool, defaults: PoolDefaults) -> Object:
    host, secret = every_address(ipv6=ipv6), names.gateway_name(pool.metadata.name)
    listen = f"{f'[{host}]' if ':' in host else host}:{names.GATEWAY_PORT}"
    timeout = gateway.request_timeout_seconds
    options = ["--listen", listen, "--key-file", f"{names.GATEWAY_KEY_DIR}/{names.SECRET_KEY}"]
    options += ["--timeout", str(timeout)]
    if gateway.vocabulary is not None:
        options += ["--vocabulary", gateway.vocabulary]
    volume, mount = own_key_volume("gateway-key", secret=secret, folder=names.GATEWAY_KEY_DIR)
    volumes, mounts = [volume], [mount]
    env = [{"name": names.ENV_URL, "value": pool_url(pool)}]
    if pool.spec.router.auth.uses_key:
        volume, mount = key_volume(pool)
        volumes.append(volume)
        mounts.append(mount)
        env.append({"name": names.ENV_KEY_FILE, "value": f"{names.KEY_DIR}/{names.SECRET_KEY}"})
    health = {"httpGet": {"path": "/health", "port": PORT_HTTP}, "timeoutSeconds": 5}
    container: Object = {
        "name": CONTAINER_GATEWAY,
        "image": image,
        "command": ["python3", "-m", "rewardpool_cli", "gateway", pool.key, "--teacher", *options],
        "env": env,
        "ports": [{"name": PORT_HTTP, "containerPort": names.GATEWAY_PORT, "protocol": "TCP"}],
        "volumeMounts": mounts,
        "securityContext": {"readOnlyRootFilesystem": True},
        "readinessProbe": {**health, "periodSeconds": 2, "failureThreshold": 3},
        "livenessProbe": {**health, "periodSeconds": 10, "failureThreshold": 6},
        "resources": resources_over(RESOURCES, resources_of(defaults.gateway.resources)),
    }
    template = pod_template(
        container,
        volumes,
        labels=recommended_labels(pool, names.COMPONENT_GATEWAY),
        grace_seconds=PRE_STOP_SECONDS + timeout + names.GATEWAY_GRACE_SECONDS + GRACE_MARGIN_SECONDS,
        security=OWN_IMAGE,
    )
    # Where nothing else is said it goes where routers go.
    default = {**defaults.pod_spec(defaults.router), **defaults.pod_spec(defaults.gateway)}
    return {**template, "spec": merged(template["spec"], default)}
