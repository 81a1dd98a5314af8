"""Small builders of Kubernetes objects: a test names only what it is about."""

from typing import Any

from rewardpool_api import RewardPool, names

FUNCTION = {"model": {"source": "python://rewards:score", "type": "Function"}, "engine": {"name": "python"}}


def a_pool(**spec: Any) -> RewardPool:
    """A pool `rm` in `rl`; `spec` is in the manifest's own camelCase."""
    metadata = {"name": "rm", "namespace": "rl", "uid": "pool-uid"}
    return RewardPool.model_validate({"metadata": metadata, "spec": {"model": {"source": "hf://org/model"}, **spec}})


def an_exposed_router(name: str = "r0", **fields: Any) -> dict[str, Any]:
    """A router's pod that trainers are sent to; `fields` as for `a_pod`."""
    pod = a_pod(name, component=names.COMPONENT_ROUTER, **fields)
    pod["status"]["conditions"].append({"type": names.CONDITION_HOLDS_WORKERS, "status": "True"})
    return pod


def a_pod(
    name: str = "w0",
    *,
    component: str = names.COMPONENT_WORKER,
    ip: str | None = "10.0.0.7",
    state: dict[str, Any] | None = None,
    **container_status: Any,
) -> dict[str, Any]:
    """A pod that runs and has answered, unless said otherwise; keywords go into its container's status."""
    status = {"name": component, "started": True, "restartCount": 0, "containerID": f"c://{name}", **container_status}
    status["state"] = {"running": {}} if state is None else state
    labels = {names.LABEL_POOL: "rm", names.LABEL_COMPONENT: component}
    if component == names.COMPONENT_WORKER:
        labels[names.LABEL_REVISION] = "new"
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels,
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "set"}],
        },
        "spec": {"nodeName": "node", "containers": [{"name": component, "ports": []}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [status],
            **({"podIP": ip} if ip else {}),
        },
    }
