"""Common parts of a pool's objects: labels, owner, keys as files, and the shape of every pod.

Pods hold no Kubernetes credential, may not gain privileges, and get keys as files.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from rewardpool_api import RewardPool, names
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manifests.diff import content_hash
from rewardpool_operator.kubernetes.workload.containers import PORT_HTTP

# Between the order to stop and SIGTERM: a worker that somebody else deletes leaves the routers in this time; a router,
# which closes its port at SIGTERM, leaves the Service's endpoints.
PRE_STOP_SECONDS: Final = 5
GRACE_MARGIN_SECONDS: Final = 15

# Readable for any user, so that no pod needs a user or group of its own, which a namespace that gives each pod a user
# of a range (as OpenShift's do) would refuse. Only the pod's containers see the keys.
KEY_MODE: Final = 0o444

SURGE_FIRST: Final[Object] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}

CONTAINER_SECURITY: Final[Object] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
OWN_IMAGE: Final = {"runAsNonRoot": True}  # not for stock engine images, which run as root


def every_address(*, ipv6: bool) -> str:
    """Return the address on which a program in a pod listens: all of its pod, in both families where there is IPv6."""
    # Not `::` everywhere: a node's kernel may be without IPv6, and then nothing could listen there.
    return "::" if ipv6 else "0.0.0.0"  # noqa: S104 - inside a pod's own network


def labels(pool: RewardPool, component: str, revision: str | None = None) -> dict[str, str]:
    """Labels of an object of the pool; they select its pods as well."""
    chosen = {names.LABEL_POOL: pool.metadata.name, names.LABEL_COMPONENT: component}
    return chosen | ({names.LABEL_REVISION: revision} if revision else {})


def recommended_labels(pool: RewardPool, component: str, revision: str | None = None) -> dict[str, str]:
    """Labels by which other tools know any application's objects; nothing of RewardPool selects by them."""
    chosen = {
        "name": "rewardpool",
        "instance": pool.metadata.name,
        "component": component,
        "part-of": "rewardpool",
        "managed-by": names.FIELD_MANAGER,
        # The revision is the hash of the pods' template, so pods have none. Nor is it the operator's version: an
        # upgrade of it would replace every pod.
        **({"version": revision} if revision else {}),
    }
    return {f"app.kubernetes.io/{name}": value for name, value in chosen.items()}


def metadata(pool: RewardPool, name: str, component: str, *, revision: str | None = None) -> dict[str, Any]:
    """Metadata of an object that the pool owns, and that goes with it."""
    return {
        "name": name,
        "namespace": pool.metadata.namespace,
        "labels": {**recommended_labels(pool, component, revision), **labels(pool, component, revision)},
        "ownerReferences": owner_references(pool),
    }


def owner_references(pool: RewardPool) -> list[Object]:
    """The pool as the owner of an object."""
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": pool.metadata.name,
        "uid": pool.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return [owner]


def environment(pool: RewardPool, variables: Mapping[str, str]) -> list[Object]:
    """A container's variables: first the user's own in their order, since `$(NAME)` stands for one further up.

    Args:
        pool: whose `spec.engine.env`.
        variables: with those of the user whose value is written down; one that is of another value here, or that the
            user takes from elsewhere, is RewardPool's own and wins.
    """
    users: dict[str, Object] = {}
    for variable in pool.spec.engine.env:
        if variable.value_from is None and variables.get(variable.name) == (variable.value or ""):
            users[variable.name] = {"name": variable.name, "value": variable.value or ""}
        elif variable.value_from is not None and variable.name not in variables:
            source = variable.value_from.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            users[variable.name] = {"name": variable.name, "valueFrom": source}
    own = sorted(set(variables) - set(users))
    return [*users.values(), *({"name": name, "value": variables[name]} for name in own)]


def with_revision(variables: list[Object]) -> list[Object]:
    """Add the variable that tells a worker its revision: a template cannot name its own hash, its pods have a label."""
    revision = {"fieldRef": {"fieldPath": f"metadata.labels['{names.LABEL_REVISION}']"}}
    others = [variable for variable in variables if variable["name"] != names.ENV_REVISION]
    return [*others, {"name": names.ENV_REVISION, "valueFrom": revision}]


def files_name(files: Mapping[str, str]) -> str:
    """Name of the ConfigMap with these files: other files are another one, so what runs keeps its own."""
    return _files_name(tuple(sorted(files.items())))


@lru_cache(maxsize=16)
def _files_name(files: tuple[tuple[str, str], ...]) -> str:
    # Hashed once for all pools: the files are 110 kB.
    return names.files_config_map(content_hash(dict(files)))


def common_volumes(pool: RewardPool, files: Mapping[str, str]) -> tuple[list[Object], list[Object]]:
    """Files for workers and routers, and the keys where there are any."""
    volumes: list[Object] = [{"name": "files", "configMap": {"name": files_name(files)}}]
    mounts: list[Object] = [{"name": "files", "mountPath": names.FILES_DIR, "readOnly": True}]
    if pool.spec.router.auth.uses_key:
        volume, mount = key_volume(pool)
        volumes.append(volume)
        mounts.append(mount)
    return volumes, mounts


def key_volume(pool: RewardPool) -> tuple[Object, Object]:
    """The volume with the pool's keys, and its mount: the whole Secret, since a rotation adds an entry."""
    secret = {"secretName": names.key_secret(pool.metadata.name), "defaultMode": KEY_MODE}
    return {"name": "key", "secret": secret}, {"name": "key", "mountPath": names.KEY_DIR, "readOnly": True}


def own_key_volume(name: str, *, secret: str, folder: str) -> tuple[Object, Object]:
    """The volume with the one entry `key` of a component's own Secret, and its mount in that folder."""
    item = {"key": names.SECRET_KEY, "path": names.SECRET_KEY}
    source = {"secretName": secret, "items": [item], "defaultMode": KEY_MODE}
    return {"name": name, "secret": source}, {"name": name, "mountPath": folder, "readOnly": True}


def service(pool: RewardPool, name: str, component: str, *, port: int) -> Object:
    """The stable address in front of a component's pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(pool, name, component),
        "spec": {
            "type": "ClusterIP",
            "selector": labels(pool, component),
            "ports": [{"name": PORT_HTTP, "port": port, "targetPort": PORT_HTTP, "protocol": "TCP"}],
        },
    }


def pod_template(
    container: Object, volumes: list[Object], *, labels: Mapping[str, str], grace_seconds: int, security: Object
) -> Object:
    """Return the template that the pods of all components share."""
    return {
        "metadata": {"labels": dict(labels)},
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
                    "securityContext": {**CONTAINER_SECURITY, **container.get("securityContext", {})},
                }
            ],
            "volumes": volumes,
        },
    }
