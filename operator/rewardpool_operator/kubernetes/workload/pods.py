"""Reading of pod objects: pure functions from JSON to the fields of a snapshot.

What containers, users and controllers wrote into a pod is bounded and printable here, and becomes a reason of ours.

The kubelet's startup probe asks a worker for a real score, and its outcome stays in the pod's status for as long as the
container runs. So "it has answered since it started" survives the operator, and no memory of ours has to.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from rewardpool_api import names
from rewardpool_api.pool import RouterFlavor
from rewardpool_api.reasons import DOWNLOAD_REASONS, ConditionReason
from rewardpool_api.status import MAX_MESSAGE
from rewardpool_api.times import from_rfc3339, time_of
from rewardpool_control.decide.room import GATED
from rewardpool_control.snapshot import Failure, Router, Worker
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.workload.containers import (
    CONTAINER_GATEWAY,
    CONTAINER_ROUTER,
    CONTAINER_WORKER,
    PORT_HTTP,
    PORT_METRICS,
    is_download,
)
from rewardpool_operator.routers.programs import PROGRAMS
from rewardpool_runtime.untrusted import NONSENSE, count_of, printable
from rewardpool_worker.diagnosis import LOG_TAIL_BYTES, diagnose

ANNOTATION_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_IMAGE_REASONS: Final = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
}
_STARTING_REASONS: Final = {"ContainerCreating", "PodInitializing"}


MAKERS: Final = ("ReplicaSet", "Sandbox")


def is_managed(pod: Object) -> bool:
    """Return whether the pod was made for a Deployment of ours, rather than by another user of our labels."""
    labels, owners = pod["metadata"].get("labels", {}), pod["metadata"].get("ownerReferences", [])
    needed = {
        names.COMPONENT_WORKER: {names.LABEL_REVISION},
        names.COMPONENT_ROUTER: set[str](),
        names.COMPONENT_GATEWAY: set[str](),
    }.get(labels.get(names.LABEL_COMPONENT))
    return needed is not None and needed <= labels.keys() and any(owner["kind"] in MAKERS for owner in owners)


def sandbox_of(pod: Object) -> str | None:
    """Name of the Sandbox whose pod it is; None for a ReplicaSet's."""
    owners = pod["metadata"].get("ownerReferences") or []
    return next((owner["name"] for owner in owners if owner["kind"] == "Sandbox"), None)


def is_over(pod: Object) -> bool:
    """Return whether the pod ended for good (evicted, or its node is gone); its ReplicaSet has replaced it already."""
    return pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def worker_of(pod: Object, *, warning: str | None = None) -> Worker:
    """A worker pod; `warning` is the last event of a pod whose containers do not even start."""
    metadata, status = pod["metadata"], _container_status(pod, CONTAINER_WORKER)
    lost = _lost(pod)
    running = _is_running(status)
    return Worker(
        name=metadata["name"],
        revision=metadata["labels"][names.LABEL_REVISION],
        url=address(pod, CONTAINER_WORKER, PORT_HTTP),
        created=from_rfc3339(metadata["creationTimestamp"]),
        placed=bool(pod["spec"].get("nodeName")),
        running=running,
        answering=running and bool(status.get("started")),
        node_unreachable=lost is not None,
        # One that somebody spoilt is none: a worker that is to leave is marked anew.
        draining_since=time_of(_annotations(pod).get(names.ANNOTATION_DRAINING_SINCE)),
        deleting=is_deleting(pod),
        disruption_target=_disruption_target(pod),
        unschedulable=_unschedulable(pod),
        failure=lost or failure_of(status, warning=warning) or _initialising_failure(pod),
        restarts=count_of(status.get("restartCount", 0)) or 0,
    )


def router_of(pod: Object, *, warning: str | None = None) -> Router:
    """A router pod, as far as Kubernetes knows it; what it answers is added by `observe`."""
    status = _container_status(pod, CONTAINER_ROUTER)
    gate = _condition(pod, names.CONDITION_HOLDS_WORKERS).get("status")
    return Router(
        name=pod["metadata"]["name"],
        exposed=gate == "True",
        # A process that ended has nothing any more.
        concealed=gate == "False" and _is_running(status),
        deleting=is_deleting(pod),
        failure=_why_not_running(pod, status, warning=warning),
    )


def gateway_failure(pod: Object, *, warning: str | None = None) -> Failure | None:
    """Return why a gateway's pod does not run, or stopped the last time it did."""
    return _why_not_running(pod, _container_status(pod, CONTAINER_GATEWAY), warning=warning)


def _why_not_running(pod: Object, status: Mapping[str, Any], *, warning: str | None) -> Failure | None:
    unschedulable = _unschedulable(pod)
    no_node = unschedulable and Failure(reason=ConditionReason.UNSCHEDULABLE.value, message=unschedulable)
    return failure_of(status, warning=warning) or no_node or None


def router_flavor(pod: Object) -> RouterFlavor:
    """Return the program that the router pod runs, whatever the pool wants by now."""
    said = _annotations(pod).get(names.ANNOTATION_FLAVOR)
    return next((flavor for flavor in PROGRAMS if flavor == said), "sglang-router")


def router_keys(pod: Object) -> str | None:
    """Fingerprint of the keys that a router pod was started with."""
    return _annotations(pod).get(names.ANNOTATION_KEYS)


def is_ready(pod: Object) -> bool:
    """Return whether Kubernetes counts the pod as ready."""
    return _condition(pod, "Ready").get("status") == "True"


def router_is_running(pod: Object) -> bool:
    """Return whether the router can be polled."""
    return _is_running(_container_status(pod, CONTAINER_ROUTER))


def is_deleting(pod: Object) -> bool:
    """Return whether the pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def is_lost(pod: Object) -> bool:
    """Return whether the pod's state is unknown: its node does not report."""
    return _lost(pod) is not None


def is_stuck_before_start(pod: Object) -> bool:
    """Return whether a node took the pod and none of its containers was started yet: mounts, images, the sandbox."""
    return bool(pod["spec"].get("nodeName")) and not is_deleting(pod) and _waits_to_start(pod)


def is_on_its_way(pod: Object) -> bool:
    """Return whether the pod is being placed or made and nothing is wrong with it: it needs no action yet."""
    has_begun = bool(pod.get("status", {}).get("podIP"))
    if has_begun or is_over(pod) or is_deleting(pod) or not _waits_to_start(pod):
        return False
    return _unschedulable(pod) is None and _disruption_target(pod) is None and not is_lost(pod)


def _waits_to_start(pod: Object) -> bool:
    status = pod.get("status", {})
    # Init containers come first; one that ended well is as good as none.
    statuses = [*(status.get("initContainerStatuses") or []), *status.get("containerStatuses", [])]
    states = [entry.get("state", {}) for entry in statuses]
    waiting = [state.get("waiting", {}).get("reason") for state in states if not has_ended_well(state)]
    return set(waiting) <= _STARTING_REASONS


def has_ended_well(state: Mapping[str, Any]) -> bool:
    """Return whether a container in this state succeeded."""
    return bool((state.get("terminated") or {}).get("exitCode") == 0)


def container_id(pod: Object, container: str = CONTAINER_WORKER) -> str:
    """Tells one start of a container's process from the next."""
    return str(_container_status(pod, container).get("containerID", pod["metadata"]["uid"]))


def served_certificate(pod: Object) -> str | None:
    """Fingerprint of the certificate that a router pod serves; None for one that serves HTTP."""
    return _annotations(pod).get(names.ANNOTATION_TLS)


def address(pod: Object, container: str, port: str) -> str | None:
    """Base URL of a container's named port; None until the pod has an address. The one place that builds such URLs."""
    ip = pod.get("status", {}).get("podIP")
    if not ip:
        return None
    host = f"[{ip}]" if ":" in ip else ip
    scheme = "https" if port == PORT_HTTP and served_certificate(pod) else "http"
    return f"{scheme}://{host}:{_container_port(pod, container, port)}"


def _container_port(pod: Object, container: str, port: str) -> int:
    defaults = {
        (CONTAINER_WORKER, PORT_HTTP): names.WORKER_PORT,
        (CONTAINER_ROUTER, PORT_HTTP): names.ROUTER_PORT,
        (CONTAINER_ROUTER, PORT_METRICS): names.ROUTER_METRICS_PORT,
    }
    for spec in pod["spec"]["containers"]:
        for entry in spec.get("ports", []) if spec["name"] == container else []:
            if entry.get("name") == port:
                return int(entry["containerPort"])
    return defaults[container, port]


def failure_of(status: Mapping[str, Any], *, warning: str | None = None) -> Failure | None:
    """Return why a container does not run, or stopped the last time it did."""
    state = status.get("state", {})
    waiting, terminated = state.get("waiting", {}), state.get("terminated")
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    terminated = terminated or status.get("lastState", {}).get("terminated")
    if reason in _IMAGE_REASONS:
        return _failure(ConditionReason.IMAGE_PULL, f"the image cannot be had: {message or reason}")
    if terminated is not None and not status.get("started"):
        return _ended(terminated, of_download=is_download(str(status.get("name"))))
    if warning is not None:
        return _failure(ConditionReason.POD_NOT_STARTING, warning)
    if reason == "CrashLoopBackOff":
        return _failure(ConditionReason.ENGINE_EXITED, f"it ended and is started again after a pause: {message}")
    if reason and reason not in _STARTING_REASONS:
        return _failure(ConditionReason.POD_NOT_STARTING, f"{reason}: {message}" if message else reason)
    return None


def _initialising_failure(pod: Object) -> Failure | None:
    """Return why a container fails that has to end before the worker starts, such as one that fetches its function."""
    statuses = pod.get("status", {}).get("initContainerStatuses") or []
    left = [status for status in statuses if not has_ended_well(status.get("state", {}))]
    return next((failure for status in left if (failure := failure_of(status)) is not None), None)


def _failure(reason: str, message: str) -> Failure:
    return Failure(reason=str(reason), message=printable(message, most=MAX_MESSAGE, keep="tail"))


def report_of(terminated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report that a download left, as JSON; empty where there is none."""
    try:
        report = json.loads(terminated.get("message") or "{}")
    except NONSENSE:
        return {}
    return report if isinstance(report, dict) else {}


def _ended(terminated: Mapping[str, Any], *, of_download: bool) -> Failure:
    """Return why a container ended: by its report, if it is a download, else by its log's last lines."""
    # Only of a download: users' code runs in the other containers.
    report = report_of(terminated) if of_download else {}
    reason = next((known for known in DOWNLOAD_REASONS if known == report.get("reason")), None)
    if reason is not None:
        return _failure(reason, printable(report.get("message"), most=MAX_MESSAGE, keep="tail"))
    # The message has the log's last lines, see `terminationMessagePolicy` in render/common.py.
    diagnosis = diagnose(
        exit_code=terminated.get("exitCode"),
        log=printable(terminated.get("message"), most=LOG_TAIL_BYTES, keep="tail"),
        oom_killed=terminated.get("reason") == "OOMKilled",
    )
    return _failure(diagnosis.reason, "\n".join([diagnosis.message, *diagnosis.log]))


def _unschedulable(pod: Object) -> str | None:
    condition = _condition(pod, "PodScheduled")
    if condition.get("status") != "False":
        return None
    reason, message = condition.get("reason"), condition.get("message")
    words = f"{GATED}: {message}" if reason == GATED else message or reason
    return printable(words, most=MAX_MESSAGE)


def refusal_of(deployment: Object) -> str | None:
    """Return why Kubernetes does not make all pods of a Deployment, in its words; None when it does."""
    condition = _condition(deployment, "ReplicaFailure")
    return printable(condition.get("message"), most=MAX_MESSAGE) if condition.get("status") == "True" else None


def _disruption_target(pod: Object) -> str | None:
    # Kubernetes announces an eviction, a preemption or a taint by this condition, and takes it back if none comes.
    condition = _condition(pod, "DisruptionTarget")
    if condition.get("status") != "True":
        return None
    return printable(f"{condition.get('reason', '')}: {condition.get('message', '')}", most=MAX_MESSAGE)


def _lost(pod: Object) -> Failure | None:
    # What the kubelet said last stays in the status. The node controller contradicts it in the condition Ready alone:
    # False today, Unknown in older releases.
    ready, containers = _condition(pod, "Ready"), _condition(pod, "ContainersReady").get("status")
    # A readiness gate that is closed, ours or another's, is the kubelet's own word, and it says so.
    contradicted = containers == "True" and ready.get("reason") != "ReadinessGatesNotReady"
    if ready.get("status") == "Unknown" or (ready.get("status") == "False" and contradicted):
        node = pod["spec"].get("nodeName", "")
        return Failure(reason=ConditionReason.NODE_LOST.value, message=f"node {node} does not report how the pod is")
    return None


def _condition(pod: Object, kind: str) -> dict[str, Any]:
    conditions = pod.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _container_status(pod: Object, name: str) -> dict[str, Any]:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return next((status for status in statuses if status["name"] == name), {})


def _is_running(status: Mapping[str, Any]) -> bool:
    return "running" in status.get("state", {})


def _annotations(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}
