"""From a pool to the objects it owns: pure functions, read from the bottom up.

    Secret POOL-key             the key of the data plane, for trainers
    Secret POOL-router-admin    the key of the routers' worker lists, for operator and routers
    ConfigMap POOL-files        the files that make a stock image a worker or a router
    Service POOL-router         the URL of the pool
    Deployment POOL-router      the routers
    Deployment POOL-worker-REV  the workers of one revision

A revision is the hash of the worker pods' template. A changed template is another Deployment, never a rolling update
of the same one: the operator moves workers from one to the other itself, since only it knows who is in which router and
who has what in flight. What does not change the pod, an upgraded operator included, changes no revision.

Pods hold no Kubernetes credential, may not gain privileges, and get keys as files.
"""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rewardpool_api import RewardPool, names, parse_source
from rewardpool_operator.kubernetes.client import Object
from rewardpool_operator.kubernetes.compare import short_hash
from rewardpool_operator.kubernetes.merge import merged
from rewardpool_worker.engines import Place, engine_for
from rewardpool_worker.mounted import ROUTER_LAUNCHER, mounted_files
from rewardpool_worker.router_flags import router_flags

PRE_STOP_SECONDS: Final = 5
"""Between the order to stop and SIGTERM. A worker that is deleted by somebody else leaves the routers in this time; a
router, which closes its port at SIGTERM, leaves the Service's endpoints."""
GRACE_MARGIN_SECONDS: Final = 15
"""An engine that has answered everything still needs some seconds to end."""
SETTLE_SECONDS: Final = 5
"""A router that was just started counts as available only after the operator had time to give it its workers."""
STARTUP_PERIOD_SECONDS: Final = 2

CLAIM_DIR: Final = "/var/lib/rewardpool/model"
"""Where the claim of a `pvc://` source is mounted."""
HUB_DIR: Final = "/var/cache/huggingface"
"""The hub's cache: a shared claim, or a folder that outlives restarts of the container."""

NON_ROOT_GROUP: Final = 65532
"""Group of mounted keys in pods on RewardPool's own image, or on one built from it, which do not run as root."""

KEY_COPY: Final = "data-plane-key"
"""Entry of the admin Secret with a copy of the pool's key: a deleted key Secret comes back with the key that running
workers and routers know, also when the operator was away."""
ANNOTATION_KEYS: Final = f"{names.GROUP}/keys"
"""Hash of both keys on router pods, which read them once: other keys are other pods."""

CONTAINER_WORKER: Final = "worker"
CONTAINER_ROUTER: Final = "router"
PORT_HTTP: Final = "http"
PORT_METRICS: Final = "metrics"


@dataclass(frozen=True)
class Keys:
    """Both keys of a pool."""

    pool: str
    admin: str

    def __repr__(self) -> str:
        """Keep keys out of logs and tracebacks."""
        return "Keys(...)"

    @property
    def fingerprint(self) -> str:
        """Tells other keys from these, and nothing else: both have 256 random bits."""
        return short_hash([self.pool, self.admin])


def pool_url(pool: RewardPool) -> str:
    """Where trainers reach the routers."""
    return f"http://{names.router_name(pool.metadata.name)}.{pool.metadata.namespace}.svc:{names.ROUTER_PORT}"


def uses_key(pool: RewardPool) -> bool:
    """Whether scoring takes a key."""
    return pool.spec.router.auth.mode == "Generated"


def revision_of(template: Object) -> str:
    """The revision of a worker pod template."""
    return short_hash(template)


def selector(pool: str, component: str | None = None) -> str:
    """Label selector of a pool's objects, or of those of one component."""
    labels = {names.LABEL_POOL: pool} | ({names.LABEL_COMPONENT: component} if component else {})
    return ",".join(f"{name}={value}" for name, value in labels.items())


def secrets(pool: RewardPool, keys: Keys) -> list[Object]:
    """The Secrets. Applied only where an entry is missing: a key that is there is never changed."""
    name = pool.metadata.name
    admin = {names.SECRET_KEY: keys.admin, **({KEY_COPY: keys.pool} if uses_key(pool) else {})}
    entries = {names.admin_secret(name): admin}
    if uses_key(pool):
        entries[names.key_secret(name)] = {names.SECRET_KEY: keys.pool}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _metadata(pool, secret, names.COMPONENT_POOL),
            "type": "Opaque",
            "data": {entry: base64.b64encode(key.encode()).decode() for entry, key in data.items()},
        }
        for secret, data in entries.items()
    ]


def files_config_map(pool: RewardPool) -> Object:
    """The mounted files. Processes read them once, so new files change nothing that runs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(pool, names.files_config_map(pool.metadata.name), names.COMPONENT_POOL),
        "data": mounted_files(),
    }


def router_service(pool: RewardPool) -> Object:
    """The stable address in front of the routers."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(pool, names.router_name(pool.metadata.name), names.COMPONENT_ROUTER),
        "spec": {
            "type": "ClusterIP",
            "selector": _labels(pool, names.COMPONENT_ROUTER),
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
    labels = _labels(pool, names.COMPONENT_ROUTER)
    template = merged(_router_template(pool, image), pool.spec.router.pod_template)
    owned = {"metadata": {"labels": labels, "annotations": {ANNOTATION_KEYS: fingerprint}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(pool, names.router_name(pool.metadata.name), names.COMPONENT_ROUTER),
        "spec": {
            "replicas": pool.spec.router.replicas,
            "minReadySeconds": SETTLE_SECONDS,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": merged(template, owned),
        },
    }


def worker_deployment(pool: RewardPool, template: Object, *, replicas: int) -> Object:
    """The workers of the template's revision, in the number that was decided."""
    revision = revision_of(template)
    labels = _labels(pool, names.COMPONENT_WORKER, revision)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(
            pool, names.worker_name(pool.metadata.name, revision), names.COMPONENT_WORKER, revision=revision
        ),
        "spec": {
            "replicas": replicas,
            # No history: a revision never changes. A hand edit starts one worker of its own and is then undone.
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": max(2, pool.spec.rollout.progress_deadline_seconds),
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": merged(template, {"metadata": {"labels": labels}}),
        },
    }


def worker_template(pool: RewardPool, *, image: str) -> Object:
    """The worker pods' template, without the labels that name its revision.

    Args:
        pool: whose workers.
        image: RewardPool's own image, for an engine that has no stock image.
    """
    spec = pool.spec
    engine = engine_for(spec.engine.name)
    launch = engine.launch(
        spec,
        Place(
            served_name=pool.served_name,
            host="0.0.0.0",  # noqa: S104 - inside a pod's own network
            port=names.WORKER_PORT,
            key_file=f"{names.KEY_DIR}/{names.SECRET_KEY}" if uses_key(pool) else None,
            claim_dir=CLAIM_DIR,
        ),
    )
    volumes, mounts = _worker_volumes(pool)
    container: Object = {
        "name": CONTAINER_WORKER,
        "image": spec.engine.image or engine.default_image or image,
        "command": list(launch.argv),
        "env": _environment(pool, launch.env),
        "ports": [{"name": PORT_HTTP, "containerPort": names.WORKER_PORT, "protocol": "TCP"}],
        "volumeMounts": mounts,
        **_worker_probes(spec.rollout.progress_deadline_seconds),
    }
    if spec.worker.gpus:
        container["resources"] = {"limits": {spec.worker.gpu_resource: str(spec.worker.gpus)}}
    grace = PRE_STOP_SECONDS + spec.worker.drain_seconds + GRACE_MARGIN_SECONDS
    stock = engine.default_image is not None
    template = _pod_template(container, volumes, grace_seconds=grace, security={} if stock else _OWN_IMAGE)
    result: Object = merged(template, spec.worker.pod_template)
    return result


def _worker_probes(start_seconds: int) -> Object:
    """A start ends with a real score; from then on only an engine that hangs for a minute is restarted.

    Neither of the later probes takes a worker out of service: the routers' own health checks and the operator do, and a
    flooded worker that is slow to answer a kubelet is the last one that should be stopped.
    """
    ready = {"httpGet": {"path": names.READY_PATH, "port": PORT_HTTP}, "timeoutSeconds": 10}
    health = {"httpGet": {"path": "/health", "port": PORT_HTTP}, "timeoutSeconds": 10}
    attempts = math.ceil(start_seconds / STARTUP_PERIOD_SECONDS)
    return {
        "startupProbe": {**ready, "periodSeconds": STARTUP_PERIOD_SECONDS, "failureThreshold": attempts},
        "readinessProbe": {**ready, "periodSeconds": 15, "failureThreshold": 4},
        "livenessProbe": {**health, "periodSeconds": 10, "failureThreshold": 6},
    }


def _worker_volumes(pool: RewardPool) -> tuple[list[Object], list[Object]]:
    volumes, mounts = _common_volumes(pool)
    # Engines pass tensors between processes through shared memory; the default of 64 MiB is too small.
    volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - a mount, not a temporary file
    source = parse_source(pool.spec.model.source)
    match source.scheme:
        case "pvc":
            volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": source.claim, "readOnly": True}})
            mounts.append({"name": "model", "mountPath": CLAIM_DIR, "readOnly": True})
        case "file":
            volumes.append({"name": "model", "hostPath": {"path": source.location, "type": "Directory"}})
            mounts.append({"name": "model", "mountPath": source.location, "readOnly": True})
        case "hf":
            cache = pool.spec.model.cache
            claim = {"persistentVolumeClaim": {"claimName": cache.claim_name}} if cache else {"emptyDir": {}}
            volumes.append({"name": "hub-cache", **claim})
            mounts.append({"name": "hub-cache", "mountPath": HUB_DIR})
        case "python":
            pass
    return volumes, mounts


def _environment(pool: RewardPool, variables: Mapping[str, str]) -> list[Object]:
    model = pool.spec.model
    from_hub = parse_source(model.source).scheme == "hf"
    given = {**({"HF_HOME": HUB_DIR} if from_hub else {}), **variables}
    env: list[Object] = [{"name": name, "value": value} for name, value in sorted(given.items())]
    if from_hub and model.token_secret_ref is not None:
        token = {"name": model.token_secret_ref.name, "key": model.token_secret_ref.key}
        env.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}})
    return env


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
    volumes, mounts = _common_volumes(pool)
    admin = {"secretName": names.admin_secret(pool.metadata.name), "items": [_key_item()], "defaultMode": 0o440}
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
    return _pod_template(container, volumes, grace_seconds=grace, security=_OWN_IMAGE)


def _common_volumes(pool: RewardPool) -> tuple[list[Object], list[Object]]:
    """Files for every pod, and the key where there is one."""
    name = pool.metadata.name
    volumes: list[Object] = [{"name": "files", "configMap": {"name": names.files_config_map(name)}}]
    mounts: list[Object] = [{"name": "files", "mountPath": names.FILES_DIR, "readOnly": True}]
    if uses_key(pool):
        secret = {"secretName": names.key_secret(name), "items": [_key_item()], "defaultMode": 0o440}
        volumes.append({"name": "key", "secret": secret})
        mounts.append({"name": "key", "mountPath": names.KEY_DIR, "readOnly": True})
    return volumes, mounts


def _key_item() -> Object:
    return {"key": names.SECRET_KEY, "path": names.SECRET_KEY}


_OWN_IMAGE: Final = {"runAsNonRoot": True, "fsGroup": NON_ROOT_GROUP}
"""For images made from RewardPool's own. Stock engine images run as root and read the keys as their owner; a group for
them would have a kubelet change the owner of every file in a shared model volume."""


def _pod_template(container: Object, volumes: list[Object], *, grace_seconds: int, security: Object) -> Object:
    """What every pod of a pool has in common."""
    return {
        "metadata": {},
        "spec": {
            "automountServiceAccountToken": False,
            # A variable for every Service of the namespace: one named `vllm` would set VLLM_PORT and break the engine.
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": grace_seconds,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **security},
            "containers": [
                {
                    **container,
                    "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
                    # The log's last lines end up in the pod's status, so that nobody needs the right to read logs.
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
            "volumes": volumes,
        },
    }


def _labels(pool: RewardPool, component: str, revision: str | None = None) -> dict[str, str]:
    labels = {names.LABEL_POOL: pool.metadata.name, names.LABEL_COMPONENT: component}
    return labels | ({names.LABEL_REVISION: revision} if revision else {})


def _metadata(pool: RewardPool, name: str, component: str, *, revision: str | None = None) -> dict[str, Any]:
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": pool.metadata.name,
        "uid": pool.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": pool.metadata.namespace,
        "labels": {**_labels(pool, component, revision), "app.kubernetes.io/managed-by": names.FIELD_MANAGER},
        "ownerReferences": [owner],
    }
