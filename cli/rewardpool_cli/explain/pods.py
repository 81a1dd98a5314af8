"""Causes of pods that do not serve: each pod gets one cause, and pods with the same problem are explained together."""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rewardpool_api import names
from rewardpool_api.reasons import DOWNLOAD_REASONS, ConditionReason
from rewardpool_api.times import from_rfc3339
from rewardpool_cli.explain.evidence import Cause, Evidence, Explanation, Object
from rewardpool_control.decide.model_status import in_words
from rewardpool_operator.kubernetes.containers import is_download
from rewardpool_operator.kubernetes.pods import failure_of, is_deleting, is_lost, is_stuck_before_start

CAUSE_OF_REASON: Final[dict[str, Cause]] = {
    ConditionReason.IMAGE_PULL: Cause.IMAGE,
    ConditionReason.MODEL_NOT_FOUND: Cause.MODEL_NOT_FOUND,
    ConditionReason.FUNCTION_NOT_FOUND: Cause.FUNCTION,
    ConditionReason.FUNCTION_NOT_FETCHED: Cause.FUNCTION,
    ConditionReason.FUNCTION_NOT_LOADABLE: Cause.FUNCTION,
    ConditionReason.FUNCTION_RAISES: Cause.FUNCTION,
    ConditionReason.SANDBOX_UNAVAILABLE: Cause.NO_SANDBOX,
    ConditionReason.NO_ACCELERATOR: Cause.NO_ACCELERATOR,
    ConditionReason.OUT_OF_MEMORY: Cause.OUT_OF_MEMORY,
    ConditionReason.MODEL_REFUSED: Cause.MODEL_REFUSED,
    ConditionReason.BAD_ARGUMENTS: Cause.BAD_ARGUMENTS,
    ConditionReason.ENGINE_EXITED: Cause.ENDS,
    ConditionReason.PORT_IN_USE: Cause.ENDS,
    ConditionReason.HUNG: Cause.ENDS,
    ConditionReason.NODE_LOST: Cause.NODE_LOST,
    ConditionReason.APPLY_FAILED: Cause.REFUSED,
    ConditionReason.FAILED_CREATE: Cause.NO_PODS_MADE,
    ConditionReason.UNSCHEDULABLE: Cause.UNSCHEDULABLE,
}


def cause_of(reason: str) -> Cause:
    """Return what a condition's reason means here."""
    return CAUSE_OF_REASON.get(reason, Cause.DOWNLOAD if reason in DOWNLOAD_REASONS else Cause.OTHER)


_CLAIM: Final = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_MISSING: Final = (
    (re.compile(r'secrets? "([^"]+)" not found|find key \S+ in Secret (?:[^/\s]+/)?(\S+)'), Cause.MISSING_SECRET),
    (
        re.compile(r'configmaps? "([^"]+)" not found|find key \S+ in ConfigMap (?:[^/\s]+/)?(\S+)'),
        Cause.MISSING_CONFIG_MAP,
    ),
    (re.compile(r"hostPath type check failed: (\S+)"), Cause.MISSING_PATH),
)
_INSUFFICIENT: Final = re.compile(r"Insufficient ([^\s,.]+(?:\.[^\s,.]+)*(?:/[^\s,.]+)?)")


_MEANINGS: Final = {member.value: member.meaning for member in ConditionReason}


def meaning_of(reason: str) -> str:
    """Return the meaning of a reason; one that is passed on from Kubernetes is explained by its message."""
    return _MEANINGS.get(reason, "a worker or router does not start")


@dataclass(frozen=True, kw_only=True)
class PodProblem:
    """Reason why one pod does not serve."""

    cause: Cause
    said: str = ""
    name: str = ""


def pod_explanations(evidence: Evidence, component: str) -> list[Explanation]:
    """Return the failures of one component's pods."""
    pods = evidence.pods_of(component)
    together: dict[tuple[Cause, str], list[tuple[Object, PodProblem]]] = defaultdict(list)
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
        return PodProblem(cause=Cause.NODE_LOST, said=f"node {pod['spec'].get('nodeName', '')} does not report")
    stuck = warning if is_stuck_before_start(pod) else None
    for status in _statuses(pod):
        failure = failure_of(status, warning=stuck)
        if failure is not None:
            return _failed(failure.reason, failure.message)
    if any(is_download(status["name"]) and "running" in status.get("state", {}) for status in _statuses(pod)):
        return PodProblem(cause=Cause.DOWNLOADING)
    if not all(status.get("started") for status in _statuses(pod)) or not _statuses(pod):
        return PodProblem(cause=Cause.STARTING, said=stuck or "")
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
        return PodProblem(cause=Cause.MISSING_CLAIM, said=message, name=claim[1])
    if "unbound immediate PersistentVolumeClaims" in message:
        return PodProblem(cause=Cause.UNBOUND_CLAIM, said=message)
    return PodProblem(cause=Cause.UNSCHEDULABLE, said=message)


def _failed(reason: str, message: str) -> PodProblem:
    known = CAUSE_OF_REASON.get(reason)
    if known is not None:
        return PodProblem(cause=known, said=message)
    if reason in DOWNLOAD_REASONS:
        return PodProblem(cause=Cause.DOWNLOAD, said=message, name=reason)
    for pattern, cause in _MISSING:
        if found := pattern.search(message):
            return PodProblem(cause=cause, said=message, name=next(group for group in found.groups() if group))
    return PodProblem(cause=Cause.NOT_STARTING, said=f"{reason}: {message}")


def _explanation(
    evidence: Evidence, component: str, pods: list[Object], problem: PodProblem, *, of: int
) -> Explanation:
    who = f"{len(pods)} of {of} {component} pods" if of > 1 else f"the {component} pod"
    one = len(pods) == 1
    is_waiting = problem.cause in (Cause.STARTING, Cause.DOWNLOADING)
    what = f"{who} {_words(evidence, problem, pods, one=one)}"
    return Explanation(
        cause=problem.cause,
        kind="waiting" if is_waiting else "problem",
        what=what[0].upper() + what[1:],
        said=problem.said or (_no_score(evidence) if problem.cause is Cause.STARTING else ""),
        next=_steps(evidence, component, problem),
    )


def _no_score(evidence: Evidence) -> str:
    ready = evidence.pool.status.condition("WorkersReady")
    return ready.message if ready is not None and ready.reason == ConditionReason.NO_SCORE else ""


def _words(evidence: Evidence, problem: PodProblem, pods: list[Object], *, one: bool) -> str:
    does, is_, waits = ("does", "is", "waits") if one else ("do", "are", "wait")
    if problem.cause is Cause.STARTING:
        oldest = max(_age_seconds(evidence, pod) for pod in pods)
        budget = evidence.pool.spec.start_seconds
        return (
            f"{is_} starting: no score yet, {'after' if one else 'the oldest after'} {oldest} s of {budget} s allowed"
        )
    if problem.cause is Cause.UNSCHEDULABLE:
        lacking = sorted({found[1].rstrip(".") for found in _INSUFFICIENT.finditer(problem.said)})
        why = f"there is not enough {' and '.join(lacking)}" if lacking else "no node is allowed to or can take it"
        return f"{waits} for a node: {why}"
    if problem.cause is Cause.DOWNLOAD:
        return f"cannot download the model ({problem.name}): {meaning_of(problem.name)}"
    if problem.cause is Cause.DOWNLOADING:
        model = evidence.pool.status.model
        far = (
            in_words(model.download) if model is not None and model.download is not None else "no progress is known yet"
        )
        return f"{waits} for the model: {far}"
    return {
        Cause.MISSING_CLAIM: f'{waits} for the PersistentVolumeClaim "{problem.name}", which does not exist',
        Cause.UNBOUND_CLAIM: f"{waits} for a PersistentVolumeClaim that has no volume yet",
        Cause.MISSING_SECRET: f'cannot start: the Secret "{problem.name}", or the entry asked of it, is missing',
        Cause.MISSING_CONFIG_MAP: f'cannot start: the ConfigMap "{problem.name}", or the entry asked of it, is missing',
        Cause.MISSING_PATH: f"cannot start: the path {problem.name} is not on the node",
        Cause.IMAGE: f"cannot start: the image {_image(pods[0])} cannot be pulled",
        Cause.MODEL_NOT_FOUND: f"{does} not start: no model at {evidence.pool.spec.model.source}, or it is refused",
        Cause.FUNCTION: f"{does} not start: the function {evidence.pool.spec.model.source} cannot be loaded",
        Cause.NO_SANDBOX: f"{does} not start: the function would reach what spec.sandbox keeps from it",
        Cause.NO_ACCELERATOR: f"{does} not start: the engine finds no GPU",
        Cause.OUT_OF_MEMORY: f"{does} not start: the model does not fit into the memory it is given",
        Cause.MODEL_REFUSED: f"{does} not start: the checkpoint cannot be served as it is",
        Cause.BAD_ARGUMENTS: f"{does} not start: the engine refuses its arguments",
        Cause.ENDS: "started and ended again; Kubernetes tries with growing pauses",
        Cause.NODE_LOST: f"{is_} on a node that does not report any more",
        Cause.NOT_STARTING: f"{is_} on a node, which cannot start {'it' if one else 'them'}",
    }[problem.cause]


def _steps(evidence: Evidence, component: str, problem: PodProblem) -> tuple[str, ...]:
    namespace = evidence.pool.metadata.namespace
    logs = evidence.command("logs", f"--component {component}", "--previous")
    template = f"spec.{component}.podTemplate"
    image = "spec.engine.image" if component == names.COMPONENT_WORKER else "spec.router.image"
    steps: dict[Cause, tuple[str, ...]] = {
        Cause.DOWNLOADING: (evidence.command("logs", f"--component {component}", "-f"),),
        Cause.STARTING: (evidence.command("logs", f"--component {component}", "-f"),),
        Cause.UNSCHEDULABLE: (
            f"free or add what is lacking, ask for less (spec.worker.gpus, resources in {template}),"
            f" or let the pods onto more nodes (nodeSelector, tolerations in {template})",
            "kubectl describe nodes",
        ),
        Cause.MISSING_CLAIM: (
            f"make the claim in namespace {namespace}, or correct its name in spec.model or {template}",
            f"kubectl get pvc -n {namespace}",
        ),
        Cause.UNBOUND_CLAIM: (f"kubectl describe pvc -n {namespace}",),
        Cause.MISSING_SECRET: (
            f"make the Secret in namespace {namespace}, or correct its name or entry in spec.model or {template}",
            f"kubectl get secret {problem.name} -n {namespace}",
        ),
        Cause.MISSING_CONFIG_MAP: (
            f"make the ConfigMap in namespace {namespace}, or correct its name or entry in {template}",
            f"kubectl get configmap {problem.name} -n {namespace}",
        ),
        Cause.MISSING_PATH: (
            "put the model there on every node that may run the pool, or choose nodes that have it"
            f" (nodeSelector in {template}), or use pvc:// or hf:// as spec.model.source",
        ),
        Cause.IMAGE: (
            f"correct {image}; for a private registry, give imagePullSecrets in {template}",
            evidence.command("rollback"),
        ),
        Cause.MODEL_NOT_FOUND: (
            "correct spec.model.source and spec.model.revision; for a gated model, give spec.model.tokenSecretRef",
            logs,
        ),
        Cause.FUNCTION: (
            "correct the function, or spec.model.source; its modules must be in the image or in a volume, with their"
            " folder in PYTHONPATH of spec.engine.env",
            logs,
        ),
        Cause.NO_SANDBOX: (
            f"choose nodes whose kernel has what the message names (nodeSelector in {template}), or set"
            " spec.sandbox.onMissing to Weaken, which serves without it",
            logs,
        ),
        Cause.NO_ACCELERATOR: (
            "ask for one by spec.worker.gpus, or write the settings for a CPU, which docs/engines.md has",
            logs,
        ),
        Cause.DOWNLOAD: (
            "docs/models.md says what each source needs: spec.model.tokenSecretRef, a larger cache, a way to the hub",
            evidence.command("logs", f"--component {component}"),
        ),
        Cause.OUT_OF_MEMORY: (
            f"give more (spec.worker.gpus with spec.engine.tensorParallelSize, or memory in {template}),"
            " or need less (spec.engine.maxModelLen, spec.engine.dtype)",
            logs,
        ),
        Cause.MODEL_REFUSED: (
            "if it needs its own code, read that, pin spec.model.revision and set spec.model.trustRemoteCode;"
            " if it lacks a head or weights, serve another checkpoint",
            logs,
        ),
        Cause.BAD_ARGUMENTS: ("correct spec.engine.args", logs),
        Cause.ENDS: (logs,),
        Cause.NODE_LOST: ("kubectl get nodes",),
        Cause.NOT_STARTING: (
            f"kubectl describe pods -n {namespace} -l {names.LABEL_POOL}={evidence.pool.metadata.name}",
        ),
    }
    return steps[problem.cause]


def _age_seconds(evidence: Evidence, pod: Object) -> int:
    return int((evidence.now - from_rfc3339(pod["metadata"]["creationTimestamp"])).total_seconds())


def _image(pod: Object) -> str:
    component = pod["metadata"]["labels"][names.LABEL_COMPONENT]
    return next((str(found.get("image", "")) for found in pod["spec"]["containers"] if found["name"] == component), "")
