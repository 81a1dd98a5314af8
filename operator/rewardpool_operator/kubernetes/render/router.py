"""The routers: a Service with the pool's URL, and a Deployment behind it."""

from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_operator.kubernetes.client import Object
from rewardpool_operator.kubernetes.merge import merged
from rewardpool_operator.kubernetes.render.common import (
    CONTAINER_ROUTER,
    GRACE_MARGIN_SECONDS,
    OWN_IMAGE,
    PORT_HTTP,
    PORT_METRICS,
    PRE_STOP_SECONDS,
    common_volumes,
    key_item,
    labels,
    metadata,
    pod_template,
    uses_key,
)
from rewardpool_worker.mounted import ROUTER_LAUNCHER
from rewardpool_worker.router_flags import router_flags

SETTLE_SECONDS: Final = 5
"""A router that was just started counts as available only after the operator had time to give it its workers."""
ANNOTATION_KEYS: Final = f"{names.GROUP}/keys"
"""Hash of both keys on router pods, which read them once: other keys are other pods."""


def router_service(pool: RewardPool) -> Object:
    """The stable address in front of the routers."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(pool, names.router_name(pool.metadata.name), names.COMPONENT_ROUTER),
        "spec": {
            "type": "ClusterIP",
            "selector": labels(pool, names.COMPONENT_ROUTER),
            "ports": [{"name": PORT_HTTP, "port": names.ROUTER_PORT, "targetPort": PORT_HTTP, "protocol": "TCP"}],
        },
    }


def router_deployment(pool: RewardPool, *, fingerprint: str, image: str) -> Object:
    """The routers; a changed one is there before the old one goes.

    Args:
        pool: whose routers.
        fingerprint: of the keys that the pods shall read.
        image: RewardPool's own image, for a pool that names none.
    """
    own_labels = labels(pool, names.COMPONENT_ROUTER)
    template = merged(_router_template(pool, image), pool.spec.router.pod_template)
    owned = {"metadata": {"labels": own_labels, "annotations": {ANNOTATION_KEYS: fingerprint}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(pool, names.router_name(pool.metadata.name), names.COMPONENT_ROUTER),
        "spec": {
            "replicas": pool.spec.router.replicas,
            "minReadySeconds": SETTLE_SECONDS,
            "selector": {"matchLabels": own_labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": merged(template, owned),
        },
    }


def _router_template(pool: RewardPool, image: str) -> Object:
    router = pool.spec.router
    flags = router_flags(
        host="0.0.0.0",  # noqa: S104 - inside a pod's own network
        port=names.ROUTER_PORT,
        metrics_host="0.0.0.0",  # noqa: S104
        metrics_port=names.ROUTER_METRICS_PORT,
        request_timeout_seconds=router.request_timeout_seconds,
        shutdown_grace_seconds=router.request_timeout_seconds,
    )
    volumes, mounts = common_volumes(pool)
    admin = {"secretName": names.admin_secret(pool.metadata.name), "items": [key_item()], "defaultMode": 0o440}
    volumes.append({"name": "admin-key", "secret": admin})
    mounts.append({"name": "admin-key", "mountPath": names.ADMIN_KEY_DIR, "readOnly": True})
    env = [{"name": names.ENV_ADMIN_KEY_FILE, "value": f"{names.ADMIN_KEY_DIR}/{names.SECRET_KEY}"}]
    if uses_key(pool):
        env.append({"name": names.ENV_KEY_FILE, "value": f"{names.KEY_DIR}/{names.SECRET_KEY}"})
    health = {"httpGet": {"path": "/health", "port": PORT_HTTP}, "timeoutSeconds": 5}
    container: Object = {
        "name": CONTAINER_ROUTER,
        "image": router.image or image,
        "command": ["python3", f"{names.FILES_DIR}/{ROUTER_LAUNCHER}", *flags],
        "env": env,
        "ports": [
            {"name": PORT_HTTP, "containerPort": names.ROUTER_PORT, "protocol": "TCP"},
            {"name": PORT_METRICS, "containerPort": names.ROUTER_METRICS_PORT, "protocol": "TCP"},
        ],
        "volumeMounts": mounts,
        # Ready without workers too: a router that has none holds requests for half a minute, a Service without a
        # ready router refuses them at once.
        "readinessProbe": {**health, "periodSeconds": 2, "failureThreshold": 3},
        "livenessProbe": {**health, "periodSeconds": 10, "failureThreshold": 6},
        # Its bounded tree of prefixes holds half a gigabyte under a long flood of unique texts.
        "resources": {"requests": {"cpu": "250m", "memory": "640Mi"}},
    }
    grace = PRE_STOP_SECONDS + router.request_timeout_seconds + GRACE_MARGIN_SECONDS
    return pod_template(container, volumes, grace_seconds=grace, security=OWN_IMAGE)
