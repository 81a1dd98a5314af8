"""The routers: a Service with the pool's URL, and a Deployment behind it.

A router that is just started has an empty list. So its readiness has a gate, which the operator opens once, when the
list was seen to be right (`decide/router_readiness.py`): until then no request goes to it, and the one it replaces
stays.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manifests.diff import short_hash
from rewardpool_operator.kubernetes.manifests.merge import merged
from rewardpool_operator.kubernetes.render.common import (
    GRACE_MARGIN_SECONDS,
    KEY_MODE,
    OWN_IMAGE,
    PRE_STOP_SECONDS,
    SURGE_FIRST,
    common_volumes,
    every_address,
    labels,
    metadata,
    own_key_volume,
    pod_template,
    recommended_labels,
    service,
)
from rewardpool_operator.kubernetes.settings.pool_defaults import (
    NO_DEFAULTS,
    PoolDefaults,
    resources_of,
    resources_over,
)
from rewardpool_operator.kubernetes.workload.containers import CONTAINER_ROUTER, PORT_HTTP, PORT_METRICS
from rewardpool_operator.routers.flags import TlsFiles, router_flags
from rewardpool_operator.routers.programs import PROGRAMS
from rewardpool_worker.mounted import ROUTER_LAUNCHER, router_files

# A long flood of unique texts: a bounded tree of prefixes of some 430 MB, in a program of 100 MB.
MEMORY_REQUEST: Final = "640Mi"
# The request, and heads that do not end, on as many connections as 4,400 requests in flight take.
MEMORY_LIMIT: Final = "4Gi"
CPU_LIMIT: Final = "4"  # a namespace with a quota of limits takes no pod without one
RESOURCES: Final[Object] = {
    "requests": {"cpu": "250m", "memory": MEMORY_REQUEST},
    "limits": {"cpu": CPU_LIMIT, "memory": MEMORY_LIMIT},
}


def router_service(pool: RewardPool) -> Object:
    """The stable address in front of the routers."""
    name = names.router_name(pool.metadata.name)
    return service(pool, name, names.COMPONENT_ROUTER, port=names.ROUTER_PORT)


def router_deployment(
    pool: RewardPool,
    *,
    fingerprint: str,
    image: str,
    certificate: str | None = None,
    ipv6: bool = False,
    defaults: PoolDefaults = NO_DEFAULTS,
) -> Object:
    """The routers; a changed one is there before the old one goes."""
    own_labels = labels(pool, names.COMPONENT_ROUTER)
    annotations = {names.ANNOTATION_KEYS: fingerprint, names.ANNOTATION_FLAVOR: pool.spec.router.flavor}
    if certificate is not None:
        annotations[names.ANNOTATION_TLS] = certificate
    owned = {"metadata": {"labels": own_labels, "annotations": annotations}}
    rendered = _router_template(pool, image, ipv6=ipv6, defaults=defaults)
    template = merged(merged(rendered, pool.spec.router.pod_template), owned)
    template_hash = {"metadata": {"annotations": {names.ANNOTATION_ROUTER_TEMPLATE: short_hash(template)}}}
    described = metadata(pool, names.router_name(pool.metadata.name), names.COMPONENT_ROUTER)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**described, "annotations": {names.ANNOTATION_CAUSE: _cause(pool, annotations)}},
        "spec": {
            "replicas": pool.spec.router.replicas or defaults.router.replicas,
            "selector": {"matchLabels": own_labels},
            "strategy": SURGE_FIRST,
            "template": merged(template, template_hash),
        },
    }


def _cause(pool: RewardPool, annotations: Mapping[str, str]) -> str:
    """Hash of what of the pool's own the routers are rendered from: its spec, keys and certificate."""
    # Without defaults, so that a field that a newer operator knows changes nothing.
    spec = pool.spec.router.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    # The CRD's default of earlier versions.
    if spec.get("replicas") == 1:
        del spec["replicas"]
    return short_hash([spec, dict(annotations)])


def _router_template(pool: RewardPool, image: str, *, ipv6: bool, defaults: PoolDefaults) -> Object:
    router = pool.spec.router
    tls = TlsFiles(
        certificate=PurePosixPath(names.TLS_DIR, names.TLS_CERTIFICATE), key=PurePosixPath(names.TLS_DIR, names.TLS_KEY)
    )
    flags = router_flags(
        flavor=router.flavor,
        host=every_address(ipv6=ipv6),
        port=names.ROUTER_PORT,
        metrics_host=every_address(ipv6=ipv6),
        metrics_port=names.ROUTER_METRICS_PORT,
        request_timeout_seconds=router.request_timeout_seconds,
        shutdown_grace_seconds=router.request_timeout_seconds,
        tls=tls if router.tls else None,
    )
    volumes, mounts = common_volumes(pool, router_files())
    volume, mount = own_key_volume(
        "admin-key", secret=names.admin_secret(pool.metadata.name), folder=names.ADMIN_KEY_DIR
    )
    volumes.append(volume)
    mounts.append(mount)
    if router.tls:
        items = [{"key": entry, "path": entry} for entry in (names.TLS_CERTIFICATE, names.TLS_KEY)]
        secret = {"secretName": router.tls.secret_name, "items": items, "defaultMode": KEY_MODE}
        volumes.append({"name": "tls", "secret": secret})
        mounts.append({"name": "tls", "mountPath": names.TLS_DIR, "readOnly": True})
    env = [
        {"name": names.ENV_ROUTER_PACKAGE, "value": PROGRAMS[router.flavor].package},
        {"name": names.ENV_ADMIN_KEY_FILE, "value": f"{names.ADMIN_KEY_DIR}/{names.SECRET_KEY}"},
        {"name": names.ENV_MEMORY_BYTES, "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
    ]
    if pool.spec.router.auth.uses_key:
        env.append({"name": names.ENV_KEY_FILE, "value": f"{names.KEY_DIR}/{names.SECRET_KEY}"})
    scheme = {"scheme": "HTTPS"} if router.tls else {}
    health = {"httpGet": {"path": "/health", "port": PORT_HTTP, **scheme}, "timeoutSeconds": 5}
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
        # Neither router writes a file.
        "securityContext": {"readOnlyRootFilesystem": True},
        # Ready without workers too, once the gate was opened: a router that lost its list has it back in two seconds,
        # and a pool at zero learns from its routers that somebody waits. /readiness would say no to both.
        "readinessProbe": {**health, "periodSeconds": 2, "failureThreshold": 3},
        "livenessProbe": {**health, "periodSeconds": 10, "failureThreshold": 6},
        "resources": resources_over(RESOURCES, resources_of(defaults.router.resources)),
    }
    grace = PRE_STOP_SECONDS + router.request_timeout_seconds + GRACE_MARGIN_SECONDS
    recommended = recommended_labels(pool, names.COMPONENT_ROUTER)
    template = pod_template(container, volumes, labels=recommended, grace_seconds=grace, security=OWN_IMAGE)
    own = {"readinessGates": [{"conditionType": names.CONDITION_HOLDS_WORKERS}]}
    spec = {**template["spec"], **own, "topologySpreadConstraints": [_spread(pool)]}
    return {**template, "spec": merged(spec, defaults.pod_spec(defaults.router))}


def _spread(pool: RewardPool) -> Object:
    # A node's end takes one router of several; one node alone takes them all.
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels(pool, names.COMPONENT_ROUTER)},
        # Routers that are being replaced do not count.
        "matchLabelKeys": ["pod-template-hash"],
    }
