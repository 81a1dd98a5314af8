"""Order in which a ReplicaSet removes pods: the worker that goes must be the one that has left the routers.

Scaling down is the ReplicaSet controller's work. It takes pods without a node before others, then pending ones, then
those that are not ready, and only among equals the lowest `pod-deletion-cost`. A worker that was drained has the lowest
cost, but a worker that is still starting would go first; in that case the operator deletes the drained pod itself.
"""

from collections.abc import Collection

from rewardpool_kube.resources import Object

COST_DRAINING = -100
COST_STOPPED = -200

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def passed_over(pods: Collection[Object], stopping: Collection[str]) -> list[str]:
    """Names of the pods to stop that the controller might keep, because another pod of the set goes before them."""
    others = [_rank(pod) for pod in pods if pod["metadata"]["name"] not in stopping]
    if not others:
        return []
    first = min(others)
    return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"] in stopping and _rank(pod) > first]


def _rank(pod: Object) -> tuple[bool, int, bool]:
    """The controller's order before it looks at the cost, first to go first."""
    status = pod.get("status", {})
    ready = any(
        (condition["type"], condition["status"]) == ("Ready", "True") for condition in status.get("conditions", [])
    )
    return bool(pod["spec"].get("nodeName")), _PHASES.get(status.get("phase", "Pending"), 0), ready
