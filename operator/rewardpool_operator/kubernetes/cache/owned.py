"""The kinds of objects that belong to a pool, and what of each is kept in memory.

Data, in one place: watching, storing and comparing go by these tables, so another kind of object is one line here, one
in the chart's role and a manifest in `render/`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rewardpool_api import names
from rewardpool_api.demand import MAX_BYTES, MAX_JOB_NAME
from rewardpool_api.status import MAX_MESSAGE
from rewardpool_kube import resources
from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.manifests.diff import content_hash
from rewardpool_operator.kubernetes.manifests.managed_fields import is_created_by_us
from rewardpool_operator.kubernetes.workload.containers import (
    CONTAINER_ROUTER,
    CONTAINER_WORKER,
    PORT_HTTP,
    PORT_METRICS,
)
from rewardpool_operator.kubernetes.workload.pods import ANNOTATION_DELETION_COST, MAKERS

WATCHED: Final[Mapping[str, Resource]] = {
    "Deployment": resources.DEPLOYMENTS,
    "Pod": resources.PODS,
    "Service": resources.SERVICES,
    "ConfigMap": resources.CONFIG_MAPS,
    "PodDisruptionBudget": resources.DISRUPTION_BUDGETS,
    "NetworkPolicy": resources.NETWORK_POLICIES,
    "Lease": resources.LEASES,
}

OF_AGENT_SANDBOX: Final[Mapping[str, Resource]] = {"SandboxClaim": resources.SANDBOX_CLAIMS}

# The right to list Secrets is the right to read all of them; `secret_deletion.py` notices a deleted one nevertheless.
READ_BY_NAME: Final[Mapping[str, Resource]] = {"Secret": resources.SECRETS}

RESOURCES: Final[Mapping[str, Resource]] = {**WATCHED, **OF_AGENT_SANDBOX, **READ_BY_NAME}

OWNED: Final = frozenset(
    {
        resources.DEPLOYMENTS,
        resources.SERVICES,
        resources.CONFIG_MAPS,
        resources.DISRUPTION_BUDGETS,
        resources.NETWORK_POLICIES,
    }
)
"""Kinds of which a pool's own are kept whole, and of all others with our label little more than the name."""
MOST_FILES: Final = 16  # ours mount one or two
LONGEST_NOTE: Final = 256  # characters

NOT_APPLIED: Final = "notApplied"
"""Mark in memory on a Deployment that was made and never applied since, see `manifests/managed_fields.py`. Of other
kinds our manifests have the same fields all the time."""


def selector_of(resource: Resource) -> str:
    """Labels by which a kind is listed and watched."""
    return {
        # Leases have other uses too (elections, nodes).
        resources.LEASES: f"{names.LABEL_POOL},{names.LABEL_COMPONENT}={names.COMPONENT_DEMAND}",
        # Those of mounted files have a component and no pool.
        resources.CONFIG_MAPS: f"{names.LABEL_COMPONENT} in ({names.COMPONENT_POOL},{names.COMPONENT_FILES})",
    }.get(resource, names.LABEL_POOL)


def trimmed(resource: Resource, found: Object) -> Object:
    """Return the object without the fields that the operator does not read."""
    # Whoever may make an object may put our label on a megabyte.
    if resource in OWNED and not is_files(found) and not is_owned(found):
        return _foreign(found)
    # As they come, the five thousand pods of a thousand pools take hundreds of megabytes.
    kept = _TRIMS[resource](found) if resource in _TRIMS else found
    metadata = {name: value for name, value in kept["metadata"].items() if name != "managedFields"}
    if resource == resources.DEPLOYMENTS and is_created_by_us(found["metadata"].get("managedFields") or ()):
        kept = {**kept, NOT_APPLIED: True}
    return {**kept, "metadata": metadata}


def is_owned(found: Object) -> bool:
    """Return whether an object is controlled by the pool in its label, and has the name of one of that pool's."""
    pool = (found["metadata"].get("labels") or {}).get(names.LABEL_POOL)
    owner = controller_of(found)
    return (owner.get("kind"), owner.get("name")) == (names.KIND, pool) and _is_called_as_ours(found["metadata"])


def is_ours(found: Object, uid: str | None) -> bool:
    """Return whether the pool with this uid controls the object, whose label and name anybody may write."""
    return uid is not None and controller_of(found).get("uid") == uid


def controller_of(found: Object) -> Object:
    """The owner that controls the object, of which there is one at most; empty for none."""
    owners: list[Object] = found["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})


def _is_called_as_ours(metadata: Object) -> bool:
    labels = metadata.get("labels") or {}
    pool = str(labels.get(names.LABEL_POOL))
    if names.LABEL_REVISION in labels:
        return bool(metadata["name"] == names.worker_name(pool, labels[names.LABEL_REVISION]))
    return metadata["name"] in (
        names.router_name(pool),
        names.gateway_name(pool),
        f"{pool}-{names.COMPONENT_WORKER}",
        names.pins_config_map(pool),
    )


def _foreign(found: Object) -> Object:
    """The name of an object that no pool owns, and which mounted files it needs."""
    metadata = found["metadata"]
    return {"metadata": _bare(metadata), **_mounting(found)}


def _bare(metadata: Object) -> Object:
    """Return kind, name and owner of an object, and the pool that its label names."""
    return {
        **_only(metadata, "name", "namespace", "uid", "resourceVersion", "creationTimestamp"),
        "labels": _only(metadata.get("labels") or {}, *_LABELS),
    }


_LABELS: Final = (names.LABEL_POOL, names.LABEL_COMPONENT, names.LABEL_REVISION)


def _mounting(found: Object) -> Object:
    spec = found.get("spec") or {}
    template = spec.get("template") or {}
    mounted = {"template": {"spec": {"volumes": _files(template)}}} if template else {"volumes": _files(found)}
    return {"spec": mounted}


def _files(template: Object) -> list[Object]:
    volumes = [volume.get("configMap") or {} for volume in template.get("spec", {}).get("volumes") or []]
    mounted = {config_map.get("name") or "" for config_map in volumes}
    ours = sorted(name for name in mounted if name.startswith(names.FILES_PREFIX))
    return [{"configMap": {"name": name}} for name in ours[:MOST_FILES]]


def is_files(found: Object) -> bool:
    """Return whether a ConfigMap is of mounted files, which all pools of its namespace share."""
    metadata = found["metadata"]
    is_named = metadata["name"].startswith(names.FILES_PREFIX)
    return is_named and (metadata.get("labels") or {}).get(names.LABEL_COMPONENT) == names.COMPONENT_FILES


def content_of(config_map: Object) -> str | None:
    """Hash of what a ConfigMap of files holds; None where it can still change, or holds what no pool mounts."""
    if not config_map.get("immutable") or config_map.get("data"):
        return None
    return content_hash(config_map.get("binaryData") or {})


def _pod(pod: Object) -> Object:
    # A pod that none of `MAKERS` made is not a pool's, and may need mounted files all the same.
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    owners = [owner for owner in metadata.get("ownerReferences") or [] if owner["kind"] in MAKERS]
    if not owners:
        return {"metadata": _bare(metadata), **_mounting(pod)}
    notes = _only(metadata.get("annotations") or {}, *_POD_ANNOTATIONS)
    kept_metadata = {
        **_bare(metadata),
        **_only(metadata, "deletionTimestamp"),
        "annotations": {name: text[:LONGEST_NOTE] for name, text in notes.items()},
        "ownerReferences": [_only(owners[0], "kind", "name", "uid")],
    }
    containers = [
        {"name": one["name"], "ports": [port for port in one.get("ports") or [] if port.get("name") in _PORTS]}
        for one in spec["containers"]
        if one["name"] in (CONTAINER_WORKER, CONTAINER_ROUTER)
    ]
    kept_status = _only(status, "phase", "podIP", "reason", "message")
    conditions = [
        _only(condition, "type", "status", "reason", "message")
        for condition in status.get("conditions", [])
        if condition["type"] in _POD_CONDITIONS and (condition["type"], condition.get("status")) != _SCHEDULED
    ]
    for name in ("containerStatuses", "initContainerStatuses"):
        kept_status[name] = [_only(entry, *_CONTAINER_STATUS) for entry in status.get(name) or []]
    kept_spec = {**_only(spec, "nodeName"), "containers": containers, **_mounting(pod)["spec"]}
    return {"metadata": kept_metadata, "spec": kept_spec, "status": {**kept_status, "conditions": conditions}}


_PORTS: Final = (PORT_HTTP, PORT_METRICS)
_POD_ANNOTATIONS: Final = (
    names.ANNOTATION_DRAINING_SINCE,
    names.ANNOTATION_FLAVOR,
    names.ANNOTATION_KEYS,
    names.ANNOTATION_ROUTER_TEMPLATE,
    names.ANNOTATION_TLS,
    ANNOTATION_DELETION_COST,
)
_POD_CONDITIONS: Final = frozenset(
    {names.CONDITION_HOLDS_WORKERS, "Ready", "ContainersReady", "DisruptionTarget", "PodScheduled"}
)
_SCHEDULED: Final = ("PodScheduled", "True")
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
    if is_files(config_map):
        return {"metadata": _bare(config_map["metadata"]), "content": content_of(config_map)}
    return config_map


def _claim(claim: Object) -> Object:
    metadata, status = claim["metadata"], claim.get("status") or {}
    ready = [one for one in status.get("conditions") or [] if one["type"] == "Ready"]
    conditions = [
        {**_only(one, "type", "status", "reason"), "message": str(one.get("message", ""))[:MAX_MESSAGE]}
        for one in ready[:1]
    ]
    return {
        "metadata": {
            **_bare(metadata),
            **_only(metadata, "deletionTimestamp"),
            "ownerReferences": [_only(controller_of(claim), "kind", "name", "uid", "controller")],
        },
        "status": {"conditions": conditions, "sandbox": _only(status.get("sandbox") or {}, "name")},
    }


def _without_status(found: Object) -> Object:
    return {name: value for name, value in found.items() if name != "status"}


def _lease(lease: Object) -> Object:
    """Return what a job announced, with `renewed`: the time of the last renewal by the API server's clock."""
    metadata = lease["metadata"]
    written = [entry["time"] for entry in metadata.get("managedFields") or [] if "time" in entry]
    # Anybody who may announce could fill the store with what is beside these, or with one that is far too long.
    kept = _bare(metadata)
    said = _only(metadata.get("annotations") or {}, names.ANNOTATION_DEMAND)
    kept["annotations"] = {name: text[: MAX_BYTES + 1] for name, text in said.items()}
    spec = lease.get("spec") or {}
    holder = (spec.get("holderIdentity") or "")[: MAX_JOB_NAME + 1]
    return {
        "metadata": kept,
        "spec": {"holderIdentity": holder, **_only(spec, "leaseDurationSeconds")},
        # Not `spec.renewTime`, by the trainer's clock: one that is behind would never be believed, one that is ahead
        # would outlive itself.
        "renewed": max(written, default=metadata["creationTimestamp"]),
    }


_TRIMS: Final[Mapping[Resource, Callable[[Object], Object]]] = {
    resources.PODS: _pod,
    resources.DEPLOYMENTS: _deployment,
    resources.DISRUPTION_BUDGETS: _without_status,
    resources.CONFIG_MAPS: _config_map,
    resources.LEASES: _lease,
    resources.SANDBOX_CLAIMS: _claim,
}


def _only(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: mapping[name] for name in names if name in mapping}
