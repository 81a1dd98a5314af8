"""Pods as the tables show them."""

from collections.abc import Collection

from rewardpool_api import names
from rewardpool_api.times import from_rfc3339
from rewardpool_cli.explain.evidence import Evidence
from rewardpool_cli.explain.pods import PodProblem, problem_of
from rewardpool_cli.tables import ProcessRow
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.workload.pods import is_deleting


def processes_of_pods(evidence: Evidence) -> list[ProcessRow]:
    """The workers and routers of a pool in a cluster."""
    components = (names.COMPONENT_ROUTER, names.COMPONENT_WORKER)
    return [_process(evidence, pod, component) for component in components for pod in evidence.pods_of(component)]


def _process(evidence: Evidence, pod: Object, component: str) -> ProcessRow:
    metadata = pod["metadata"]
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return ProcessRow(
        name=metadata["name"],
        component=component,
        phase=phase_of(
            pod,
            problem_of(pod, warning=evidence.warnings.get(metadata["name"])),
            parked=evidence.pool.status.parked_workers,
        ),
        restarts=sum(status.get("restartCount", 0) for status in statuses),
        revision=metadata["labels"].get(names.LABEL_REVISION, ""),
        place=pod["spec"].get("nodeName", ""),
        age_seconds=int((evidence.now - from_rfc3339(metadata["creationTimestamp"])).total_seconds()),
    )


def phase_of(pod: Object, problem: PodProblem | None, *, parked: Collection[str] = ()) -> str:
    """One word for where a pod is in its life, or for what is wrong with it; `parked` has the names of parked pods."""
    if is_deleting(pod) or names.ANNOTATION_DRAINING_SINCE in (pod["metadata"].get("annotations") or {}):
        return "Draining"
    if problem is None:
        return "Parked" if pod["metadata"]["name"] in parked else "Ready"
    return "Pending" if problem.cause == "Unschedulable" else problem.cause
