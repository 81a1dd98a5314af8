"""Step 6: what to say: the conditions of the status, which is in `status.py`.

What each condition means is documented where it is defined, in `rewardpool_api.status`, and what each reason means in
`rewardpool_api.reasons`.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from rewardpool_api import Condition
from rewardpool_api.reasons import NOTHING_WANTED, ConditionReason
from rewardpool_api.status import MAX_MESSAGE, ConditionType, ModelStatus, ScalingStatus
from rewardpool_operator.autoscaler import budget
from rewardpool_operator.decide.agreement import Agreement
from rewardpool_operator.decide.load import missing_metrics
from rewardpool_operator.decide.model_status import in_words, model_status
from rewardpool_operator.decide.revisions import first_without_score, overdue_message
from rewardpool_operator.decide.rollout import Rollout
from rewardpool_operator.decide.room import lacks_room
from rewardpool_operator.decide.router_readiness import PATIENCE_SECONDS
from rewardpool_operator.decide.sleeping import Sleeping
from rewardpool_operator.decide.worker_lists import WorkerListChanges
from rewardpool_operator.snapshot import Failure, Snapshot, Worker
from rewardpool_operator.times import from_rfc3339, rfc3339
from rewardpool_operator.untrusted import printable

METRICS_PATIENCE_SECONDS: Final = 30.0
"""For so long metrics may be missing before the pool is degraded: a router that starts has none for some seconds."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A condition before it is compared with the one said before."""

    holds: bool
    reason: str
    message: str = ""


def conditions_of(
    snapshot: Snapshot,
    *,
    scaling: ScalingStatus,
    model: ModelStatus,
    rollout: Rollout,
    lists: WorkerListChanges,
    agreement: Agreement,
    sleeping: Sleeping,
    staying: list[Worker],
) -> list[Condition]:
    """All conditions, each with the time since when it is what it is. `staying` are the workers that do not leave."""
    ready = len(lists.serving)
    resting = _resting(snapshot, sleeping, staying, ready)
    serving = resting or _serving(snapshot, scaling, model, staying, ready)
    progressing = _progressing(snapshot, scaling, rollout, model, staying, _at_rest_or(ready, staying))
    findings: dict[ConditionType, Finding] = {
        "Ready": _ready(snapshot, scaling, rollout, serving),
        "Serving": serving,
        "WorkersReady": resting or _workers_ready(scaling, staying, ready),
        "RouterReady": _router_ready(snapshot, lists),
        "ScalingActive": _scaling_active(snapshot, scaling),
        "Progressing": progressing,
        "Degraded": _with_failures(_degraded(snapshot, scaling, rollout, agreement, staying), snapshot, progressing),
    }
    return [_condition(snapshot, kind, finding) for kind, finding in findings.items()]


def held_conditions(
    snapshot: Snapshot, cause: Failure, *, lists: WorkerListChanges | None, staying: list[Worker]
) -> list[Condition]:
    """All conditions of a pool of which nothing but its routers' lists is kept, for this cause.

    Args:
        snapshot: what there is.
        cause: why.
        lists: the routers' lists; None where the routers could not be asked, and nobody knows whether they serve.
            Whether the pool is what its spec asks for is not known in any case.
        staying: the workers that do not leave.
    """
    memory = snapshot.pool.status.scaling
    scaling = memory or ScalingStatus(desired=len(staying), reason=cause.message)
    held = Finding(holds=False, reason=cause.reason, message=f"the size stays as it is: {cause.message}")
    findings: dict[ConditionType, Finding | None] = dict.fromkeys(("Ready", "Serving", "WorkersReady", "RouterReady"))
    if lists is not None:
        ready = len(lists.serving)
        findings |= {
            "Serving": _serving(snapshot, scaling, model_status(snapshot, staying), staying, ready),
            "WorkersReady": _workers_ready(scaling, staying, ready),
            "RouterReady": _router_ready(snapshot, lists),
        }
    findings |= {
        "ScalingActive": held,
        "Progressing": held,
        "Degraded": _with_failures(Finding(holds=True, reason=cause.reason, message=cause.message), snapshot, held),
    }
    return [
        _condition(snapshot, kind, finding) if finding is not None else _unknown(snapshot, kind, cause)
        for kind, finding in findings.items()
    ]


def _unknown(snapshot: Snapshot, kind: ConditionType, cause: Failure) -> Condition:
    return _condition(
        snapshot, kind, Finding(holds=False, reason=cause.reason, message=cause.message), status="Unknown"
    )


def _resting(snapshot: Snapshot, sleeping: Sleeping, staying: list[Worker], ready: int) -> Finding | None:
    """What there is to say of a pool that does not serve because of sleep; None when that is not why."""
    asleep = sum(worker.asleep for worker in staying)
    status = sleeping.status
    if status is None or ready > 0 or snapshot.pool.spec.suspend or not any(worker.answering for worker in staying):
        return None
    if status.holders:
        message = f"{asleep} replicas wake, for {len(status.holders)} processes that hold the pool awake"
        return Finding(holds=False, reason=ConditionReason.WAKING, message=message) if asleep else None
    if status.state == "Asleep":
        message = f"{asleep} replicas sleep until a trainer holds the pool awake"
        return Finding(holds=False, reason=ConditionReason.ASLEEP, message=message)
    message = f"{asleep} of {len(staying)} replicas sleep, others are on their way to it"
    return Finding(holds=False, reason=ConditionReason.FALLING_ASLEEP, message=message)


def _at_rest_or(ready: int, staying: list[Worker]) -> int:
    """Replicas that are what they shall be: those that serve, and those that sleep."""
    return ready + sum(worker.asleep for worker in staying)


def _ready(snapshot: Snapshot, scaling: ScalingStatus, rollout: Rollout, serving: Finding) -> Finding:
    """Whether the pool is what its spec asks for; that may be to serve nobody."""
    if snapshot.pool.spec.suspend:
        return Finding(
            holds=True, reason=ConditionReason.SUSPENDED, message="spec.suspend is set: no replica is wanted"
        )
    if not serving.holds and serving.reason not in NOTHING_WANTED:
        return serving
    stopped = _stopped(snapshot, rollout)
    if stopped is not None:
        return stopped
    blind = _blind(snapshot, scaling) if scaling.desired == 0 else None
    if blind is not None:
        return Finding(holds=False, reason=blind.reason, message=blind.message)
    if rollout.reason is not None:
        return Finding(holds=False, reason=rollout.reason, message=_rolling(rollout))
    return replace(serving, holds=True)


def _serving(
    snapshot: Snapshot, scaling: ScalingStatus, model: ModelStatus, staying: list[Worker], ready: int
) -> Finding:
    """Whether a score can be had now."""
    if ready > 0:
        return Finding(
            holds=True, reason=ConditionReason.SERVING, message=f"{ready} of {scaling.desired} replicas serve"
        )
    if snapshot.pool.spec.suspend:
        return Finding(
            holds=False, reason=ConditionReason.SUSPENDED, message="spec.suspend is set; set it to false to serve again"
        )
    if not any(router.answering for router in snapshot.routers):
        if snapshot.tls_problem is not None:
            return Finding(holds=False, reason=ConditionReason.TLS_UNUSABLE, message=snapshot.tls_problem)
        return Finding(holds=False, reason=ConditionReason.ROUTER_NOT_READY, message="no router answers yet")
    if scaling.desired == 0:
        return Finding(
            holds=False, reason=ConditionReason.AT_ZERO, message=f"the pool is at zero replicas: {scaling.reason}"
        )
    failure = _first_failure(staying)
    if failure is not None:
        return Finding(holds=False, reason=failure.reason, message=failure.message)
    if model.download is not None:
        return Finding(holds=False, reason=ConditionReason.DOWNLOADING, message=in_words(model.download))
    no_score = first_without_score(staying)
    return Finding(
        holds=False,
        reason=ConditionReason.NO_SCORE if no_score else ConditionReason.STARTING,
        message=f"{len(staying)} of {scaling.desired} replicas are starting{no_score}",
    )


def _workers_ready(scaling: ScalingStatus, staying: list[Worker], ready: int) -> Finding:
    if ready >= scaling.desired:
        return Finding(holds=True, reason=ConditionReason.ALL_READY, message=f"{ready} replicas serve")
    failure, no_score = _first_failure(staying), first_without_score(staying)
    others = len(staying) - ready
    waiting = ConditionReason.NO_SCORE if no_score else ConditionReason.STARTING
    return Finding(
        holds=False,
        reason=failure.reason if failure else waiting,
        message=f"{ready} of {scaling.desired} replicas serve, {others} are starting or failing{no_score}",
    )


def _router_ready(snapshot: Snapshot, lists: WorkerListChanges) -> Finding:
    if snapshot.tls_problem is not None:
        return Finding(holds=False, reason=ConditionReason.TLS_UNUSABLE, message=snapshot.tls_problem)
    routers = [router for router in snapshot.routers if not router.deleting]
    answering = sum(router.answering for router in routers)
    wanted = snapshot.pool.spec.router.replicas
    failure = next((router.failure for router in routers if router.failure), None)
    if failure is not None and answering < wanted:
        return Finding(holds=False, reason=failure.reason, message=failure.message)
    if answering < wanted:
        return Finding(holds=False, reason=ConditionReason.STARTING, message=f"{answering} of {wanted} routers answer")
    changes = len(lists.joins) + len(lists.leaves)
    if changes:
        return Finding(
            holds=False, reason=ConditionReason.UPDATING_WORKER_LIST, message=f"{changes} changes to the routers' lists"
        )
    return Finding(holds=True, reason=ConditionReason.ALL_READY, message=f"{answering} routers hold the right workers")


def _scaling_active(snapshot: Snapshot, scaling: ScalingStatus) -> Finding:
    spec = snapshot.pool.spec
    if spec.suspend:
        return Finding(holds=False, reason=ConditionReason.SUSPENDED, message=scaling.reason)
    if spec.autoscaling is None:
        return Finding(holds=True, reason=ConditionReason.FIXED, message="spec.replicas holds")
    missing = _needed_metrics(snapshot)
    if missing is not None:
        message = f"{missing}, so the size may grow and not shrink"
        return Finding(holds=False, reason=ConditionReason.METRICS_UNAVAILABLE, message=message)
    if spec.autoscaling.budget is not None:
        disagreement = budget.disagreement(spec.autoscaling.budget, snapshot.pool.metadata.name, snapshot.claims)
        if disagreement is not None:
            return Finding(holds=True, reason=ConditionReason.BUDGET_DISAGREES, message=disagreement)
    if spec.autoscaling.is_external and spec.replicas is None:
        message = (
            "spec.replicas is not set, so the pool has no scale that an HPA could read: write it once, by kubectl scale"
        )
        return Finding(holds=False, reason=ConditionReason.REPLICAS_NOT_SET, message=message)
    if spec.autoscaling.is_external:
        return Finding(holds=True, reason=ConditionReason.EXTERNAL, message="spec.replicas holds, within bounds")
    types = [policy.type for policy in spec.autoscaling.combined]
    # A policy alone is a reason of its own name.
    reason = next(reason for reason in ConditionReason if reason == (types[0] if len(types) == 1 else "Combined"))
    return Finding(holds=True, reason=reason, message=f"{scaling.desired} replicas are wanted")


def _progressing(
    snapshot: Snapshot,
    scaling: ScalingStatus,
    rollout: Rollout,
    model: ModelStatus,
    staying: list[Worker],
    ready: int,
) -> Finding:
    stopped = _stopped(snapshot, rollout)
    if stopped is not None:
        return stopped
    if rollout.unschedulable is not None and rollout.replace_reason is None:
        message = f"a worker of revision {rollout.choice.target} fits nowhere: {rollout.unschedulable}"
        return Finding(holds=True, reason=ConditionReason.UNSCHEDULABLE, message=message)
    parity = rollout.memory.parity
    if parity is not None and parity.outcome == "Waiting":
        return Finding(holds=True, reason=ConditionReason.CHECKING_PARITY, message=parity.message)
    if rollout.reason is not None:
        message = _rolling(rollout)
        if model.download is not None:
            message += f"; {in_words(model.download)}"
        return Finding(holds=True, reason=rollout.reason, message=message)
    if model.download is not None:
        return Finding(holds=True, reason=ConditionReason.DOWNLOADING, message=in_words(model.download))
    if ready < scaling.desired or len(staying) != scaling.desired:
        message = f"{len(staying)} replicas, {ready} of them serving, {scaling.desired} wanted"
        return Finding(holds=True, reason=ConditionReason.SCALING, message=message)
    if snapshot.pool.spec.rollout.paused:
        message = "spec.rollout.paused is set; no other revision waits"
        return Finding(holds=False, reason=ConditionReason.PAUSED, message=message)
    if snapshot.offer is not None:
        message = (
            f"revision {snapshot.revision} runs as it was made; new workers would have {snapshot.offer}:"
            f" `rewardpool restart {snapshot.pool.key}` or a changed spec brings them"
        )
        return Finding(holds=False, reason=ConditionReason.UPDATE_AVAILABLE, message=message)
    return Finding(holds=False, reason=ConditionReason.STABLE, message="nothing is changing")


def _rolling(rollout: Rollout) -> str:
    message = f"rolling to revision {rollout.choice.target} from {', '.join(rollout.others)}"
    if rollout.replace_reason is not None:
        message += f"; replacing one by one, since there was no room: {rollout.replace_reason}"
    return message


def _stopped(snapshot: Snapshot, rollout: Rollout) -> Finding | None:
    """Why the present revision does not go on; None when it does."""
    choice, present = rollout.choice, snapshot.revision
    failed = _failed_revision(rollout)
    if failed is not None:
        return failed
    if choice.parity_unusable is not None:
        message = f"revision {present} waits: {choice.parity_unusable.message}"
        return Finding(holds=False, reason=ConditionReason.GOLDEN_SET_UNUSABLE, message=message)
    if choice.overdue:
        message = overdue_message(snapshot, choice.parity)
        reason = choice.hopeless or ConditionReason.DEADLINE_EXCEEDED
        return Finding(holds=False, reason=reason, message=message)
    if snapshot.pool.spec.rollout.paused and choice.target != present:
        message = f"spec.rollout.paused is set: revision {choice.target} is kept, revision {present} waits"
        return Finding(holds=False, reason=ConditionReason.PAUSED, message=message)
    return None


def _failed_revision(rollout: Rollout) -> Finding | None:
    """A present revision that failed, rolled back or with nothing to go back to."""
    failed, parity = rollout.memory.failed, rollout.choice.parity_failed
    if failed is not None:
        message = (
            f"revision {rollout.memory.stable_revision} serves until the spec changes, since {failed.revision} failed"
        )
        return Finding(
            holds=False, reason=ConditionReason.ROLLED_BACK, message=f"{message}: {failed.reason}: {failed.message}"
        )
    if parity is not None:
        message = f"revision {parity.revision} gets no traffic: {parity.message}"
        return Finding(holds=False, reason=ConditionReason.PARITY_EXCEEDED, message=message)
    return None


def _degraded(
    snapshot: Snapshot, scaling: ScalingStatus, rollout: Rollout, agreement: Agreement, staying: list[Worker]
) -> Finding:
    failed = _failed_revision(rollout)
    if failed is not None:
        known = rollout.memory.failed
        compared = known is not None and known.reason == ConditionReason.PARITY_EXCEEDED
        reason = ConditionReason.PARITY_EXCEEDED if compared else failed.reason
        return Finding(holds=True, reason=reason, message=failed.message)
    unusable = rollout.choice.parity_unusable
    if unusable is not None:
        return Finding(holds=True, reason=ConditionReason.GOLDEN_SET_UNUSABLE, message=unusable.message)
    if snapshot.tls_problem is not None:
        return Finding(holds=True, reason=ConditionReason.TLS_UNUSABLE, message=snapshot.tls_problem)
    failure = _first_failure(staying) or agreement.problem
    if failure is None:
        failure = next((router.failure for router in snapshot.routers if router.failure), None)
        failure = failure or _silence(snapshot) or _blind(snapshot, scaling)
    if failure is None and snapshot.holders is None and snapshot.pool.spec.engine.sleep.enabled:
        message = (
            "spec.engine.sleep.enabled is for a pool on one machine (`rewardpool up`): here nobody wakes an engine, so"
            " the workers are started as any others and stay awake; set it to false"
        )
        return Finding(holds=True, reason=ConditionReason.NO_SLEEP_HERE, message=message)
    if failure is None:
        return Finding(holds=False, reason=ConditionReason.AS_EXPECTED)
    return Finding(holds=True, reason=failure.reason, message=failure.message)


def _with_failures(degraded: Finding, snapshot: Snapshot, progressing: Finding) -> Finding:
    """The condition with what of the pool could not be read or written, the first of it as its reason."""
    failures = [*snapshot.failures, *_refusals(snapshot, progressing)]
    if not failures:
        return degraded
    messages = [failure.message for failure in failures]
    if degraded.holds:
        messages.append(f"{degraded.reason}: {degraded.message}")
    # Of one message the end counts, where a program's last words are; of several the first is the most important.
    message = messages[0] if len(messages) == 1 else printable("; ".join(messages), most=MAX_MESSAGE, keep="head")
    return Finding(holds=True, reason=failures[0].reason, message=message)


def _refusals(snapshot: Snapshot, progressing: Finding) -> list[Failure]:
    """Pods that Kubernetes does not make, the first refusal alone."""
    refused = [*(worker_set.refused for worker_set in snapshot.worker_sets), snapshot.routers_refused]
    # A rollout that makes the room by itself says so; there is nothing for people to do.
    makes_room = progressing.reason == ConditionReason.NO_ROOM
    found = (words for words in refused if words is not None and not (makes_room and lacks_room(words)))
    return [Failure(reason=ConditionReason.FAILED_CREATE, message=words) for words in found][:1]


def _silence(snapshot: Snapshot) -> Failure | None:
    """A router that trainers are or were sent to, and that has not answered for a while; None when all do."""
    silent = [
        router.name
        for router in snapshot.routers
        if not router.deleting and (router.exposed or router.concealed) and router.silent_seconds >= PATIENCE_SECONDS
    ]
    if not silent:
        return None
    message = f"router {', '.join(silent)} does not answer the operator"
    scaling = snapshot.pool.spec.autoscaling
    if scaling is not None and not scaling.is_external:
        message += "; until it does, the size may grow and not shrink"
    return Failure(reason=ConditionReason.ROUTER_SILENT, message=message)


def _needed_metrics(snapshot: Snapshot) -> str | None:
    """Which metrics are missing of those that the size follows from; None when none are."""
    spec = snapshot.pool.spec
    follows_load = spec.autoscaling is not None and not spec.autoscaling.is_external and not spec.suspend
    return missing_metrics(snapshot) if follows_load else None


def _blind(snapshot: Snapshot, scaling: ScalingStatus) -> Failure | None:
    """Metrics that have been missing for a while; None when they have not."""
    missing, before = _needed_metrics(snapshot), snapshot.pool.status.condition("ScalingActive")
    if missing is None or before is None or before.reason != ConditionReason.METRICS_UNAVAILABLE:
        return None
    if (snapshot.now - from_rfc3339(before.last_transition_time)).total_seconds() < METRICS_PATIENCE_SECONDS:
        return None
    effect = "no request there wakes the pool" if scaling.desired == 0 else "the size may grow and not shrink"
    message = f"{missing}: {effect} until the operator reaches ports 8080 and 9090 of its routers"
    return Failure(reason=ConditionReason.METRICS_UNAVAILABLE, message=message)


def _first_failure(workers: list[Worker]) -> Failure | None:
    """The failure of the first worker that does not answer; a restarted one that answers again is no news."""
    return next((worker.failure for worker in workers if worker.failure and not worker.answering), None)


def _condition(
    snapshot: Snapshot, kind: ConditionType, finding: Finding, *, status: Literal["Unknown"] | None = None
) -> Condition:
    holds: Literal["True", "False", "Unknown"] = status or ("True" if finding.holds else "False")
    before = snapshot.pool.status.condition(kind)
    unchanged = before is not None and before.status == holds
    return Condition(
        type=kind,
        status=holds,
        reason=str(finding.reason),
        message=printable(finding.message, most=MAX_MESSAGE, keep="tail"),
        last_transition_time=before.last_transition_time if before and unchanged else rfc3339(snapshot.now),
        observed_generation=snapshot.pool.metadata.generation,
    )
