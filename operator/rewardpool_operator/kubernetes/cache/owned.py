"""The kinds of objects that belong to a pool, and what of each is kept in memory.

Data, in one place: watching, storing and comparing go by these tables, so another kind of object is one line here, one
in `permissions.py` and a manifest in `render/`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rewardpool_api import names
from rewardpool_api.demand import MAX_BYTES, MAX_JOB_NAME
from rewardpool_operator.kubernetes import client
from rewardpool_operator.kubernetes.client import Object, Resource
from rewardpool_operator.kubernetes.diff import content_hash
from rewardpool_operator.kubernetes.managed_fields import is_created_by_us

WATCHED: Final[Mapping[str, Resource]] = {
    "Deployment": client.DEPLOYMENTS,
    "Pod": client.PODS,
    "Service": client.SERVICES,
    "ConfigMap": client.CONFIG_MAPS,
    "PodDisruptionBudget": client.DISRUPTION_BUDGETS,
    "NetworkPolicy": client.NETWORK_POLICIES,
    "Lease": client.LEASES,
}
"""Kind -> resource: listed and watched by label."""

READ_BY_NAME: Final[Mapping[str, Resource]] = {"Secret": client.SECRETS}
"""Kinds that the operator may not list: the right to list Secrets is the right to read all of them. For how a
deleted one is noticed nevertheless see `secret_deletion.py`."""

RESOURCES: Final[Mapping[str, Resource]] = {**WATCHED, **READ_BY_NAME}


NOT_APPLIED: Final = "notApplied"
"""On a Deployment in memory that was made and never applied since, see `managed_fields.py`. Of other kinds our
manifests have the same fields all the time."""


def selector_of(resource: Resource) -> str:
    """Labels by which a kind is listed and watched.

    Leases are everybody's (of elections, of nodes); of these only what training jobs announce is looked at. ConfigMaps
    of mounted files have a component and no pool.
    """
    return {
        client.LEASES: f"{names.LABEL_POOL},{names.LABEL_COMPONENT}={names.COMPONENT_DEMAND}",
        client.CONFIG_MAPS: f"{names.LABEL_COMPONENT} in ({names.COMPONENT_POOL},{names.COMPONENT_FILES})",
    }.get(resource, names.LABEL_POOL)


def trimmed(resource: Resource, found: Object) -> Object:
    """The object without what nobody here reads.

    A thousand pools are five thousand pods; as they come, they take hundreds of megabytes, and half of their changes
    (times of conditions, counts of Deployments) are no reason to look at a pool.
    """
    kept = _TRIMS.get(resource, _as_is)(found)
    metadata = {name: value for name, value in kept["metadata"].items() if name != "managedFields"}
    if resource == client.DEPLOYMENTS and is_created_by_us(found["metadata"].get("managedFields") or ()):
        kept = {**kept, NOT_APPLIED: True}
    return {**kept, "metadata": metadata}


def is_files(found: Object) -> bool:
    """Whether a ConfigMap is of mounted files, which all pools of its namespace share."""
    metadata = found["metadata"]
    is_named = metadata["name"].startswith(names.FILES_PREFIX)
    return is_named and (metadata.get("labels") or {}).get(names.LABEL_COMPONENT) == names.COMPONENT_FILES


def content_of(config_map: Object) -> str | None:
    """Hash of what a ConfigMap of files holds; None where it can still change, or holds what no pool mounts."""
    if not config_map.get("immutable") or config_map.get("binaryData"):
        return None
    return content_hash(config_map.get("data") or {})


def _as_is(found: Object) -> Object:
    return found


def _pod(pod: Object) -> Object:
    spec, status = pod["spec"], pod.get("status", {})
    containers = [_only(container, "name", "ports") for container in spec["containers"]]
    kept_status = _only(status, "phase", "podIP", "reason", "message")
    conditions = [
        _only(condition, "type", "status", "reason", "message")
        for condition in status.get("conditions", [])
        if condition["type"] in _POD_CONDITIONS and (condition["type"], condition.get("status")) != _SCHEDULED
    ]
    for name in ("containerStatuses", "initContainerStatuses"):
        kept_status[name] = [_only(entry, *_CONTAINER_STATUS) for entry in status.get(name) or []]
    files = [_only(volume, "configMap") for volume in spec.get("volumes") or [] if "configMap" in volume]
    kept_spec = {**_only(spec, "nodeName"), "containers": containers, "volumes": files}
    return {"metadata": pod["metadata"], "spec": kept_spec, "status": {**kept_status, "conditions": conditions}}


_POD_CONDITIONS: Final = frozenset(
    {names.CONDITION_HOLDS_WORKERS, "Ready", "ContainersReady", "DisruptionTarget", "PodScheduled"}
)
_SCHEDULED: Final = ("PodScheduled", "True")
"""Only why a pod is not is looked at."""
_OF_ROLLOUTS: Final = "deployment.kubernetes.io/"
_CONTAINER_STATUS: Final = ("name", "started", "ready", "restartCount", "containerID", "state", "lastState")


def _deployment(deployment: Object) -> Object:
    conditions = deployment.get("status", {}).get("conditions", [])
    failures = [
        _only(condition, "type", "status", "reason", "message")
        for condition in conditions
        if condition["type"] == "ReplicaFailure"
    ]
    metadata = {**deployment["metadata"], "annotations": _without_rollout(deployment["metadata"].get("annotations"))}
    return {**deployment, "metadata": metadata, "status": {"conditions": failures}}


def _without_rollout(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Without what Kubernetes notes of its own rollouts, a moment after it was told of a Deployment."""
    return {name: value for name, value in (annotations or {}).items() if not name.startswith(_OF_ROLLOUTS)}


def _config_map(config_map: Object) -> Object:
    """Anybody who may make a ConfigMap may put our label on a megabyte: of what no pool owns the name will do.

    Of mounted files, the hash of their content will do.
    """
    metadata = config_map["metadata"]
    if is_files(config_map):
        return {"metadata": metadata, "content": content_of(config_map)}
    if any(owner.get("kind") == names.KIND for owner in metadata.get("ownerReferences") or []):
        return config_map
    return {
        "metadata": {
            **_only(metadata, "name", "namespace", "uid", "resourceVersion", "creationTimestamp"),
            "labels": _only(metadata.get("labels") or {}, names.LABEL_POOL, names.LABEL_COMPONENT),
        }
    }


def _without_status(found: Object) -> Object:
    return {name: value for name, value in found.items() if name != "status"}


def _lease(lease: Object) -> Object:
    """What a job announced, and `renewed`: when it last did, by the API server's clock.

    Never by `spec.renewTime`, which is what the trainer's clock said: a trainer whose clock is a minute behind would
    never be believed, and one whose clock is ahead would outlive itself. The API server notes in `managedFields` when
    somebody changed something, to the second.
    """
    metadata = lease["metadata"]
    written = [entry["time"] for entry in metadata.get("managedFields") or [] if "time" in entry]
    kept = _only(metadata, "name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    # Anybody who may announce could fill the store with what is beside these, or with one that is far too long.
    kept["labels"] = _only(metadata.get("labels") or {}, names.LABEL_POOL, names.LABEL_COMPONENT)
    said = _only(metadata.get("annotations") or {}, names.ANNOTATION_DEMAND)
    kept["annotations"] = {name: text[: MAX_BYTES + 1] for name, text in said.items()}
    spec = lease.get("spec") or {}
    holder = (spec.get("holderIdentity") or "")[: MAX_JOB_NAME + 1]
    return {
        "metadata": kept,
        "spec": {"holderIdentity": holder, **_only(spec, "leaseDurationSeconds")},
        "renewed": max(written, default=metadata["creationTimestamp"]),
    }


_TRIMS: Final[Mapping[Resource, Callable[[Object], Object]]] = {
    client.PODS: _pod,
    client.DEPLOYMENTS: _deployment,
    client.DISRUPTION_BUDGETS: _without_status,
    client.CONFIG_MAPS: _config_map,
    client.LEASES: _lease,
}


def _only(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: mapping[name] for name in names if name in mapping}
