"""Explanations from the pool object itself: its spec, refusals, and the state of a rollout."""

from dataclasses import replace
from typing import Final

from rewardpool_api import Condition, names
from rewardpool_api.reasons import NOTHING_WANTED, ConditionReason
from rewardpool_api.status import NEVER_OBSERVED, FailedRollout
from rewardpool_api.times import from_rfc3339
from rewardpool_cli.explain.advice import Explanation, cause_of, explanation, meaning_of
from rewardpool_cli.explain.evidence import Evidence

SEEN_WITHIN_SECONDS: Final = 15
_OF_ROLLOUTS: Final = ("Parity", "RolledBack", "Deadline")


def spec_explanations(evidence: Evidence) -> list[Explanation]:
    """Return the parts of the spec that keep the pool from serving, and whether an operator has seen it."""
    metadata = evidence.pool.metadata
    found = []
    if metadata.deletion_timestamp is not None:
        found.append(explanation(evidence, "BeingDeleted", finalizers=", ".join(metadata.finalizers)))
    if not evidence.is_local and evidence.pool.status.observed_generation != metadata.generation:
        found.append(_unseen(evidence))
    if evidence.pool.spec.suspend:
        found.append(explanation(evidence, "Suspended"))
    return found


def _unseen(evidence: Evidence) -> Explanation:
    if evidence.pool.status.observed_generation != NEVER_OBSERVED:
        return explanation(evidence, "SpecNotSeen")
    created = evidence.pool.metadata.creation_timestamp
    age = evidence.seconds_since(from_rfc3339(created) if created else None) or 0
    found = explanation(evidence, "NotSeen", age=age)
    return replace(found, kind="waiting") if age < SEEN_WITHIN_SECONDS else found


def operator_explanations(evidence: Evidence) -> list[Explanation]:
    """Return the failing steps of the operator, in its own words, and the refusals of objects that the pool owns."""
    degraded = evidence.pool.status.condition("Degraded")
    cause = cause_of(degraded.reason) if degraded is not None and degraded.status == "True" else None
    found = [_of_reason(evidence, cause, degraded)] if degraded and cause in ("NotReconciled", "Refused") else []
    # A Deployment that is refused says nothing of its pods.
    return found if cause == "Refused" else found + _no_pods(evidence)


def _no_pods(evidence: Evidence) -> list[Explanation]:
    for deployment in evidence.deployments:
        for condition in deployment.get("status", {}).get("conditions", []):
            if (condition["type"], condition["status"]) == ("ReplicaFailure", "True"):
                return [_pods_refused(evidence, deployment["metadata"]["name"], condition.get("message", ""))]
    return []


def _pods_refused(evidence: Evidence, deployment: str, message: str) -> Explanation:
    pool = evidence.pool.metadata.name
    components = {names.router_name(pool): names.COMPONENT_ROUTER, names.gateway_name(pool): names.COMPONENT_GATEWAY}
    component = components.get(deployment, names.COMPONENT_WORKER)
    own = f"the resources of the container {component} in spec.{component}.podTemplate"
    is_worker = component == names.COMPONENT_WORKER
    return explanation(
        evidence,
        "ResourcesNotSaid" if "must specify" in message else "NoPodsMade",
        said=message,
        deployment=deployment,
        component=component,
        field="spec.worker.resources" if is_worker else own,
        or_gpus=" or spec.worker.gpus" if is_worker else "",
        of_download=", which count for its download too" if is_worker else "",
    )


def rollout_explanations(evidence: Evidence) -> list[Explanation]:
    """Return the state of a rollout that does not simply go on."""
    status = evidence.pool.status
    rollout, progressing = status.rollout, status.condition("Progressing")
    found = []
    if rollout is not None and rollout.failed is not None:
        found.append(_failed(evidence, rollout.failed, rollout.stable_revision))
    elif progressing is not None and progressing.reason == ConditionReason.DEADLINE_EXCEEDED:
        found.append(explanation(evidence, "Deadline", said=progressing.message))
    if rollout is not None and rollout.parity is not None and rollout.parity.outcome == "Unusable":
        found.append(explanation(evidence, "Parity", said=rollout.parity.message))
    stable = rollout.stable_revision if rollout is not None else None
    if evidence.pool.spec.rollout.paused:
        found.append(explanation(evidence, "Paused"))
    elif progressing is not None and progressing.status == "True" and stable not in (None, status.current_revision):
        found.append(explanation(evidence, "Rolling", said=progressing.message, stable=stable))
    return found


def _failed(evidence: Evidence, failed: FailedRollout, stable: str | None) -> Explanation:
    return explanation(
        evidence,
        "ParityExceeded" if failed.reason == ConditionReason.PARITY_EXCEEDED else "RolledBack",
        said=f"{failed.reason}: {failed.message}",
        failed=failed,
        instead=f"; revision {stable} serves instead" if stable else "",
    )


def condition_explanations(evidence: Evidence, *, has_problem: bool, has_any: bool) -> list[Explanation]:
    """Return the conditions that nothing else explained: all there is on one machine, or without rights to read more.

    Args:
        has_problem: whether some problem is explained already.
    """
    status = evidence.pool.status
    degraded, serving = status.condition("Degraded"), status.condition("Serving")
    if degraded is not None and degraded.status == "True" and cause_of(degraded.reason) not in _OF_ROLLOUTS:
        return [] if has_problem else [_of_condition(evidence, degraded)]
    if serving is None or serving.status == "True" or serving.reason in NOTHING_WANTED or has_any:
        return []
    return [_of_condition(evidence, serving)]


def _of_condition(evidence: Evidence, condition: Condition) -> Explanation:
    cause = cause_of(condition.reason)
    if cause == "Starting":
        return explanation(evidence, "StartingByCondition", said=condition.message)
    if cause == "Stopped":
        return explanation(evidence, "Stopped", said=f"{condition.reason}: {condition.message}")
    # The advice of other rows is about pods, which nobody saw.
    return replace(_of_reason(evidence, "Other", condition), cause=cause)


def _of_reason(evidence: Evidence, row: str, condition: Condition) -> Explanation:
    reason = condition.reason
    return explanation(evidence, row, said=condition.message, reason=reason, meaning=meaning_of(reason))
