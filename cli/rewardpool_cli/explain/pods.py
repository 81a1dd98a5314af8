"""Causes of pods that do not serve: each pod gets one cause, and pods with the same problem are explained together."""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rewardpool_api import names
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.times import from_rfc3339
from rewardpool_cli.explain.advice import Explanation, cause_of, explanation, meaning_of
from rewardpool_cli.explain.evidence import Evidence
from rewardpool_control.decide.model_status import in_words
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.workload.containers import is_download
from rewardpool_operator.kubernetes.workload.pods import failure_of, is_deleting, is_lost, is_stuck_before_start

_CLAIM: Final = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_MISSING: Final = (
    (re.compile(r'secrets? "([^"]+)" not found|find key \S+ in Secret (?:[^/\s]+/)?(\S+)'), "MissingSecret"),
    (
        re.compile(r'configmaps? "([^"]+)" not found|find key \S+ in ConfigMap (?:[^/\s]+/)?(\S+)'),
        "MissingConfigMap",
    ),
    (re.compile(r"hostPath type check failed: (\S+)"), "MissingPath"),
)
_INSUFFICIENT: Final = re.compile(r"Insufficient ([^\s,.]+(?:\.[^\s,.]+)*(?:/[^\s,.]+)?)")


@dataclass(frozen=True, kw_only=True)
class PodProblem:
    """Reason why one pod does not serve."""

    cause: str
    said: str = ""
    name: str = ""


def pod_explanations(evidence: Evidence, component: str) -> list[Explanation]:
    """Return the failures of one component's pods."""
    pods = evidence.pods_of(component)
    together: dict[tuple[str, str], list[tuple[Object, PodProblem]]] = defaultdict(list)
    for pod in pods:
        problem = problem_of(pod, warning=evidence.warnings.get(pod["metadata"]["name"]))
        if problem is not None:
            together[problem.cause, problem.name].append((pod, problem))
    return [
        _explanation(evidence, component, [pod for pod, _ in found], found[0][1], of=len(pods))
        for found in together.values()
    ]


def problem_of(pod: Object, *, warning: str | None) -> PodProblem | None:
    """Return why a pod does not serve; None for one that does, or is leaving."""
    if is_deleting(pod) or names.ANNOTATION_DRAINING_SINCE in (pod["metadata"].get("annotations") or {}):
        return None
    for condition in pod.get("status", {}).get("conditions", []):
        if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
            return _unscheduled(str(condition.get("message") or condition.get("reason", "")))
    if is_lost(pod):
        return PodProblem(cause="NodeLost", said=f"node {pod['spec'].get('nodeName', '')} does not report")
    stuck = warning if is_stuck_before_start(pod) else None
    for status in _statuses(pod):
        failure = failure_of(status, warning=stuck)
        if failure is not None:
            return _failed(failure.reason, failure.message)
    if any(is_download(status["name"]) and "running" in status.get("state", {}) for status in _statuses(pod)):
        return PodProblem(cause="Downloading")
    if not all(status.get("started") for status in _statuses(pod)) or not _statuses(pod):
        return PodProblem(cause="Starting", said=stuck or "")
    return None


def _statuses(pod: Object) -> list[Object]:
    """Return the statuses of containers that have not done their part yet: those that initialise come first."""
    status = pod.get("status", {})
    pending = [
        found
        for found in status.get("initContainerStatuses", [])
        if (found.get("state", {}).get("terminated") or {}).get("exitCode") != 0
    ]
    component = pod["metadata"]["labels"][names.LABEL_COMPONENT]
    return pending + [found for found in status.get("containerStatuses", []) if found["name"] == component]


def _unscheduled(message: str) -> PodProblem:
    if claim := _CLAIM.search(message):
        return PodProblem(cause="MissingClaim", said=message, name=claim[1])
    if "unbound immediate PersistentVolumeClaims" in message:
        return PodProblem(cause="UnboundClaim", said=message)
    return PodProblem(cause="Unschedulable", said=message)


def _failed(reason: str, message: str) -> PodProblem:
    cause = cause_of(reason)
    if cause != "Other":
        return PodProblem(cause=cause, said=message, name=reason if cause == "Download" else "")
    for pattern, missing in _MISSING:
        if found := pattern.search(message):
            return PodProblem(cause=missing, said=message, name=next(group for group in found.groups() if group))
    return PodProblem(cause="NotStarting", said=f"{reason}: {message}")


def _explanation(
    evidence: Evidence, component: str, pods: list[Object], problem: PodProblem, *, of: int
) -> Explanation:
    one = len(pods) == 1
    model = evidence.pool.status.model
    download = model.download if model is not None else None
    lacking = sorted({found[1].rstrip(".") for found in _INSUFFICIENT.finditer(problem.said)})
    verbs = {"does": "does", "is": "is", "waits": "waits"} if one else {"does": "do", "is": "are", "waits": "wait"}
    return explanation(
        evidence,
        problem.cause,
        said=problem.said or (_no_score(evidence) if problem.cause == "Starting" else ""),
        who=f"{len(pods)} of {of} {component} pods" if of > 1 else f"the {component} pod",
        **verbs,
        it="it" if one else "them",
        after="after" if one else "the oldest after",
        oldest=max(_age_seconds(evidence, pod) for pod in pods),
        lacking=f"there is not enough {' and '.join(lacking)}" if lacking else "no node is allowed to or can take it",
        progress=in_words(download) if download is not None else "no progress is known yet",
        name=problem.name,
        meaning=meaning_of(problem.name),
        image=_image(pods[0]),
        image_field="spec.engine.image" if component == names.COMPONENT_WORKER else "spec.router.image",
        component=component,
        template=f"spec.{component}.podTemplate",
        logs=evidence.command("logs", f"--component {component}", "--previous"),
    )


def _no_score(evidence: Evidence) -> str:
    ready = evidence.pool.status.condition("WorkersReady")
    return ready.message if ready is not None and ready.reason == ConditionReason.NO_SCORE else ""


def _age_seconds(evidence: Evidence, pod: Object) -> int:
    return int((evidence.now - from_rfc3339(pod["metadata"]["creationTimestamp"])).total_seconds())


def _image(pod: Object) -> str:
    component = pod["metadata"]["labels"][names.LABEL_COMPONENT]
    return next((str(found.get("image", "")) for found in pod["spec"]["containers"] if found["name"] == component), "")
