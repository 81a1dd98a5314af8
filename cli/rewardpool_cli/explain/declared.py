"""Explanations from the pool object itself: its spec, refusals, and the state of a rollout."""

from typing import Final

from rewardpool_api import Condition, names
from rewardpool_api.reasons import NOTHING_WANTED, ConditionReason
from rewardpool_api.status import NEVER_OBSERVED, FailedRollout, RolloutStatus
from rewardpool_api.times import from_rfc3339
from rewardpool_cli.explain.evidence import Cause, Evidence, Explanation
from rewardpool_cli.explain.pods import cause_of, meaning_of

SEEN_WITHIN_SECONDS: Final = 15

_ROLLOUT_REASONS: Final = frozenset(
    {
        ConditionReason.PARITY_EXCEEDED,
        ConditionReason.GOLDEN_SET_UNUSABLE,
        ConditionReason.ROLLED_BACK,
        ConditionReason.DEADLINE_EXCEEDED,
    }
)

_LOCAL_REASONS: Final = frozenset(
    {
        ConditionReason.STOPPED,
        ConditionReason.GAVE_UP,
        ConditionReason.SUPERVISOR_GONE,
        ConditionReason.SUPERVISOR_FAILED,
    }
)


def spec_explanations(evidence: Evidence) -> list[Explanation]:
    """Return the parts of the spec that keep the pool from serving, and whether an operator has seen it."""
    pool = evidence.pool
    found = []
    if pool.metadata.deletion_timestamp is not None:
        found.append(
            Explanation(
                cause=Cause.BEING_DELETED,
                kind="waiting",
                what="The pool is being deleted, and what it owns goes with it",
                next=tuple(f"it waits for the finalizer {name}" for name in pool.metadata.finalizers),
            )
        )
    if not evidence.is_local:
        found += _unseen(evidence)
    if pool.spec.suspend:
        found.append(
            Explanation(
                cause=Cause.SUSPENDED,
                kind="problem",
                what="The pool is suspended: spec.suspend is set, and no worker is wanted",
                next=(evidence.patch('{"suspend":false}'),),
            )
        )
    return found


def _unseen(evidence: Evidence) -> list[Explanation]:
    metadata, status = evidence.pool.metadata, evidence.pool.status
    if status.observed_generation == metadata.generation:
        return []
    created = metadata.creation_timestamp
    age = evidence.seconds_since(from_rfc3339(created) if created else None) or 0
    never = status.observed_generation == NEVER_OBSERVED
    young = never and age < SEEN_WITHIN_SECONDS
    what = f"No operator has looked at the pool since it was made {age} s ago"
    if not never:
        generations = f"generation {metadata.generation}; the status is about {status.observed_generation}"
        what = f"The operator has not looked at the present spec yet ({generations})"
    return [
        Explanation(
            cause=Cause.NOT_SEEN,
            kind="waiting" if young else "problem",
            what=what,
            next=(
                f"wait some seconds; then see whether an operator runs that watches namespace {metadata.namespace}",
                "kubectl get pods -A -l app.kubernetes.io/part-of=rewardpool,app.kubernetes.io/component=operator",
            ),
        )
    ]


_FAILING: Final = {
    ConditionReason.SECRETS_UNREADABLE: "let the operator read Secrets in namespace {namespace}: its Role there",
    ConditionReason.CERTIFICATE_UNREADABLE: "let the operator read Secrets in namespace {namespace}: its Role there",
    ConditionReason.GOLDEN_SET_UNREADABLE: "let the operator read ConfigMaps in namespace {namespace}: its Role there",
    ConditionReason.DEMANDS_UNREADABLE: "let the operator read Leases in namespace {namespace}: its Role there",
    ConditionReason.INVALID_OBJECT: "correct the field that is named",
    ConditionReason.NULL_IGNORED: "write {{$patch: delete}} in place of the null, or leave the field out",
    ConditionReason.RECONCILE_FAILED: "read the operator's log, and report what it says: it is a fault of RewardPool",
    ConditionReason.API_SERVER_UNREACHABLE: "it is tried again every few seconds; see whether the API server is well",
    ConditionReason.STATUS_NOT_WRITTEN: "let the operator patch rewardpools/status: its Role there",
}


def failing_explanations(evidence: Evidence) -> list[Explanation]:
    """Return the operator's failing steps for the pool, since when and why, in its own words."""
    degraded = evidence.pool.status.condition("Degraded")
    if degraded is None or degraded.status != "True" or degraded.reason not in _FAILING:
        return []
    step = next(step for reason, step in _FAILING.items() if reason == degraded.reason)
    step = step.format(namespace=evidence.pool.metadata.namespace)
    what = f"{degraded.reason}: {meaning_of(degraded.reason)}"
    return [Explanation(cause=Cause.NOT_RECONCILED, kind="problem", what=what, said=degraded.message, next=(step,))]


def refused_explanations(evidence: Evidence) -> list[Explanation]:
    """Return the refusals of objects that the pool owns."""
    degraded = evidence.pool.status.condition("Degraded")
    if degraded is not None and degraded.status == "True" and degraded.reason == ConditionReason.APPLY_FAILED:
        return [
            Explanation(
                cause=Cause.REFUSED,
                kind="problem",
                what="The API server refuses an object of the pool",
                said=degraded.message,
                next=(
                    "correct the field that is named: it came from podTemplate in spec.worker, spec.router or"
                    " spec.gateway; an object that is somebody else's has to be renamed or removed by its owner",
                ),
            )
        ]
    for deployment in evidence.deployments:
        for condition in deployment.get("status", {}).get("conditions", []):
            if (condition["type"], condition["status"]) == ("ReplicaFailure", "True"):
                return [_no_pods(evidence, deployment["metadata"]["name"], condition.get("message", ""))]
    return []


def _no_pods(evidence: Evidence, deployment: str, message: str) -> Explanation:
    pool, namespace = evidence.pool.metadata.name, evidence.pool.metadata.namespace
    components = {names.router_name(pool): names.COMPONENT_ROUTER, names.gateway_name(pool): names.COMPONENT_GATEWAY}
    return Explanation(
        cause=Cause.NO_PODS_MADE,
        kind="problem",
        what=f"Kubernetes does not make the pods of Deployment {deployment}: a quota, a webhook, a Pod Security level",
        said=message,
        next=(
            f"kubectl describe quota,limitrange -n {namespace}",
            _about_resources(message, components.get(deployment, names.COMPONENT_WORKER)),
        ),
    )


def _about_resources(message: str, part: str) -> str:
    """Return the remedy for pods that a quota or limit range refuses in these words."""
    is_worker = part == names.COMPONENT_WORKER
    own = f"the resources of the container {part} in spec.{part}.podTemplate"
    field = "spec.worker.resources" if is_worker else own
    if "must specify" in message:
        also = ", which count for its download too" if is_worker else ""
        return f"say what is missing in {field}{also}; for all pools, in the chart's poolDefaults.{part}.resources"
    return f"ask for less in {field}{' or spec.worker.gpus' if is_worker else ''}, or have the limit raised"


def rollout_explanations(evidence: Evidence) -> list[Explanation]:
    """Return the state of a rollout that does not simply go on."""
    spec, rollout = evidence.pool.spec, evidence.pool.status.rollout
    progressing = evidence.pool.status.condition("Progressing")
    found = []
    if rollout is not None and rollout.failed is not None:
        found.append(_failed(evidence, rollout, rollout.failed))
    elif progressing is not None and progressing.reason == ConditionReason.DEADLINE_EXCEEDED:
        found.append(
            Explanation(
                cause=Cause.DEADLINE,
                kind="problem",
                what="No worker of the present revision served within"
                f" {spec.start_seconds} s, and there is no earlier one to go back to",
                said=progressing.message,
                next=(
                    evidence.command("logs", "--component worker", "--previous"),
                    "correct the spec; if the start only takes longer, raise spec.rollout.progressDeadlineSeconds",
                ),
            )
        )
    parity = rollout.parity if rollout is not None else None
    if parity is not None and parity.outcome == "Unusable":
        found.append(
            Explanation(
                cause=Cause.PARITY,
                kind="problem",
                what="The rollout waits: its golden set cannot be used",
                said=parity.message,
                next=(
                    "correct the ConfigMap named in spec.rollout.parity.goldenSetRef, or remove spec.rollout.parity",
                ),
            )
        )
    if spec.rollout.paused:
        found.append(
            Explanation(
                cause=Cause.PAUSED,
                kind="note",
                what="Rollouts are paused: spec.rollout.paused is set, and the stable revision serves",
                next=(evidence.patch('{"rollout":{"paused":false}}'),),
            )
        )
    elif progressing is not None and progressing.status == "True" and rollout is not None:
        found += _under_way(progressing, rollout.stable_revision, evidence.pool.status.current_revision)
    return found


def _under_way(progressing: Condition, good: str | None, revision: str) -> list[Explanation]:
    if good in (None, revision):
        return []
    what = f"A rollout from revision {good} to {revision} is under way"
    return [Explanation(cause=Cause.ROLLING, kind="waiting", what=what, said=progressing.message)]


def _failed(evidence: Evidence, rollout: RolloutStatus, failed: FailedRollout) -> Explanation:
    compared = failed.reason == ConditionReason.PARITY_EXCEEDED
    instead = f"; revision {rollout.stable_revision} serves instead" if rollout.stable_revision else ""
    what = (
        f"Revision {failed.revision} scores the golden set differently{instead}"
        if compared
        else f"Revision {failed.revision} failed{instead}"
    )
    correct = "correct the spec: a new revision is tried at once"
    if compared:
        correct = "correct the spec, or raise spec.rollout.parity.maxAbsDiff if the difference is meant"
    return Explanation(
        cause=Cause.PARITY if compared else Cause.ROLLED_BACK,
        kind="problem",
        what=what,
        said=f"{failed.reason}: {failed.message}",
        next=(correct, f"make the spec say what serves: {evidence.command('rollback')}"),
    )


def condition_explanations(evidence: Evidence, *, has_problem: bool, has_any: bool) -> list[Explanation]:
    """Return the conditions that nothing else explained: all there is on one machine, or without rights to read more.

    Args:
        has_problem: whether some problem is explained already.
    """
    status = evidence.pool.status
    degraded, serving = status.condition("Degraded"), status.condition("Serving")
    if degraded is not None and degraded.status == "True" and degraded.reason not in _ROLLOUT_REASONS:
        return [] if has_problem else [_of_condition(evidence, degraded)]
    if serving is None or serving.status == "True" or serving.reason in NOTHING_WANTED or has_any:
        return []
    if serving.reason in _LOCAL_REASONS:
        said = f"{serving.reason}: {serving.message}"
        what = "The pool does not run"
        return [
            Explanation(cause=Cause.STOPPED, kind="problem", what=what, said=said, next=("rewardpool up -f MANIFEST",))
        ]
    return [_of_condition(evidence, serving)]


def _of_condition(evidence: Evidence, condition: Condition) -> Explanation:
    starting = condition.reason in (
        ConditionReason.STARTING,
        ConditionReason.NO_SCORE,
        ConditionReason.ROUTER_NOT_READY,
    )
    return Explanation(
        cause=Cause.STARTING if starting else cause_of(condition.reason),
        kind="waiting" if starting else "problem",
        what="Workers or routers are starting" if starting else f"{condition.reason}: {meaning_of(condition.reason)}",
        said=condition.message,
        next=(evidence.command("logs"),),
    )
