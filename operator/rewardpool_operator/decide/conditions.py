"""Step 5: what to say: the status with its conditions, and an event for each change worth telling.

What each condition means is documented where it is defined, in `rewardpool_api.status`.
"""

from dataclasses import dataclass
from typing import Literal

from rewardpool_api import Condition, RewardPoolStatus, names
from rewardpool_api.status import MAX_MESSAGE, AuthStatus, ConditionType, LoadStatus, ModelStatus, ScalingStatus
from rewardpool_operator.decide.leaving import Leaving
from rewardpool_operator.decide.membership import Membership
from rewardpool_operator.decide.rollout import DEADLINE_EXCEEDED, NO_ROOM, Rollout
from rewardpool_operator.plan import Event
from rewardpool_operator.snapshot import Failure, Snapshot, Worker
from rewardpool_operator.times import rfc3339

_TOLD: tuple[ConditionType, ...] = ("Ready", "Degraded", "Progressing")
"""Conditions whose changes are events."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A condition before it is compared with the one said before."""

    holds: bool
    reason: str
    message: str = ""


def status_and_events(
    snapshot: Snapshot,
    *,
    load: LoadStatus | None,
    scaling: ScalingStatus,
    rollout: Rollout,
    leaving: Leaving,
    membership: Membership,
) -> tuple[RewardPoolStatus, tuple[Event, ...]]:
    """The new status, and events for what differs from the old one."""
    staying = [worker for worker in snapshot.workers if leaving.stays(worker)]
    ready = len(membership.serving)
    findings: dict[ConditionType, Finding] = {
        "Ready": _ready(snapshot, scaling, staying, ready),
        "WorkersReady": _workers_ready(scaling, staying, ready),
        "RouterReady": _router_ready(snapshot, membership),
        "ScalingActive": _scaling_active(snapshot, load, scaling),
        "Progressing": _progressing(snapshot, scaling, rollout, staying, ready),
        "Degraded": _degraded(snapshot, staying),
    }
    old = snapshot.pool.status
    status = RewardPoolStatus(
        observed_generation=snapshot.pool.metadata.generation,
        url=snapshot.url,
        replicas=len(staying),
        ready_replicas=ready,
        draining_replicas=len(snapshot.workers) - len(staying),
        selector=worker_selector(snapshot.pool.metadata.name),
        revision=snapshot.revision,
        model=_model(snapshot, staying),
        auth=_auth(snapshot),
        load=load,
        conditions=[_condition(snapshot, kind, finding) for kind, finding in findings.items()],
        scaling=scaling,
        workers=old.workers,
    )
    return status, tuple(_events(snapshot, status, leaving, rollout))


def worker_selector(pool: str) -> str:
    """Label selector of a pool's worker pods, as the scale subresource shows it to HPA."""
    return f"{names.LABEL_POOL}={pool},{names.LABEL_COMPONENT}={names.COMPONENT_WORKER}"


def _ready(snapshot: Snapshot, scaling: ScalingStatus, staying: list[Worker], ready: int) -> Finding:
    if ready > 0:
        return Finding(holds=True, reason="Serving", message=f"{ready} of {scaling.desired} replicas serve")
    if snapshot.pool.spec.suspend:
        return Finding(holds=False, reason="Suspended", message="spec.suspend is set; set it to false to serve again")
    if not any(router.answering for router in snapshot.routers):
        return Finding(holds=False, reason="RouterNotReady", message="no router answers yet")
    if scaling.desired == 0:
        return Finding(holds=False, reason="AtZero", message=f"the pool is at zero replicas: {scaling.reason}")
    failure = _first_failure(staying)
    if failure is not None:
        return Finding(holds=False, reason=failure.reason, message=failure.message)
    return Finding(holds=False, reason="Starting", message=f"{len(staying)} of {scaling.desired} replicas are starting")


def _workers_ready(scaling: ScalingStatus, staying: list[Worker], ready: int) -> Finding:
    if ready >= scaling.desired:
        return Finding(holds=True, reason="AllReady", message=f"{ready} replicas serve")
    failure = _first_failure(staying)
    return Finding(
        holds=False,
        reason=failure.reason if failure else "Starting",
        message=f"{ready} of {scaling.desired} replicas serve, {len(staying) - ready} are starting or failing",
    )


def _router_ready(snapshot: Snapshot, membership: Membership) -> Finding:
    routers = [router for router in snapshot.routers if not router.deleting]
    answering = sum(router.answering for router in routers)
    wanted = snapshot.pool.spec.router.replicas
    failure = next((router.failure for router in routers if router.failure), None)
    if failure is not None and answering < wanted:
        return Finding(holds=False, reason=failure.reason, message=failure.message)
    if answering < wanted:
        return Finding(holds=False, reason="Starting", message=f"{answering} of {wanted} routers answer")
    changes = len(membership.joins) + len(membership.leaves)
    if changes:
        return Finding(holds=False, reason="UpdatingWorkerList", message=f"{changes} changes to the routers' lists")
    return Finding(holds=True, reason="AllReady", message=f"{answering} routers hold the right workers")


def _scaling_active(snapshot: Snapshot, load: LoadStatus | None, scaling: ScalingStatus) -> Finding:
    spec = snapshot.pool.spec
    if spec.suspend:
        return Finding(holds=False, reason="Suspended", message=scaling.reason)
    if spec.autoscaling is None:
        return Finding(holds=True, reason="Fixed", message="spec.replicas holds")
    if spec.autoscaling.policy.type == "External":
        return Finding(holds=True, reason="External", message="spec.replicas holds, within bounds")
    if load is None:
        return Finding(holds=False, reason="FiguresMissing", message=scaling.reason)
    return Finding(holds=True, reason="QueueDepth", message=f"{scaling.desired} replicas are wanted")


def _progressing(
    snapshot: Snapshot, scaling: ScalingStatus, rollout: Rollout, staying: list[Worker], ready: int
) -> Finding:
    if rollout.overdue:
        seconds = snapshot.pool.spec.rollout.progress_deadline_seconds
        message = f"no worker of revision {snapshot.revision} answered within {seconds} s"
        return Finding(holds=False, reason=DEADLINE_EXCEEDED, message=message)
    if rollout.reason is not None:
        message = f"rolling to revision {snapshot.revision} from {', '.join(rollout.old)}"
        if rollout.reason == NO_ROOM:
            message += f"; replacing one by one, since there was no room: {rollout.no_room or 'said earlier'}"
        return Finding(holds=True, reason=rollout.reason, message=message)
    if ready < scaling.desired or len(staying) != scaling.desired:
        message = f"{len(staying)} replicas, {ready} of them serving, {scaling.desired} wanted"
        return Finding(holds=True, reason="Scaling", message=message)
    return Finding(holds=False, reason="Stable", message="nothing is changing")


def _degraded(snapshot: Snapshot, staying: list[Worker]) -> Finding:
    failure = _first_failure(staying)
    if failure is None:
        failure = next((router.failure for router in snapshot.routers if router.failure), None)
    if failure is None:
        return Finding(holds=False, reason="AsExpected")
    return Finding(holds=True, reason=failure.reason, message=failure.message)


def _first_failure(workers: list[Worker]) -> Failure | None:
    """The failure of the first worker that does not answer; a restarted one that answers again is no news."""
    return next((worker.failure for worker in workers if worker.failure and not worker.answering), None)


def _model(snapshot: Snapshot, staying: list[Worker]) -> ModelStatus:
    lengths = [worker.max_model_len for worker in staying if worker.max_model_len is not None]
    before = snapshot.pool.status.model
    return ModelStatus(
        type=snapshot.pool.spec.model.type,
        served_name=snapshot.pool.served_name,
        # The shortest, while a rollout changes it; the last known one while nobody answers.
        max_model_len=min(lengths) if lengths else before.max_model_len if before else None,
    )


def _auth(snapshot: Snapshot) -> AuthStatus:
    """Where the key is: `local/` puts a file there once; on Kubernetes it is the Secret."""
    if snapshot.pool.spec.router.auth.mode == "Disabled":
        return AuthStatus()
    before = snapshot.pool.status.auth
    return before if before.key_file else AuthStatus(secret_name=names.key_secret(snapshot.pool.metadata.name))


def _condition(snapshot: Snapshot, kind: ConditionType, finding: Finding) -> Condition:
    status: Literal["True", "False"] = "True" if finding.holds else "False"
    before = snapshot.pool.status.condition(kind)
    unchanged = before is not None and before.status == status
    return Condition(
        type=kind,
        status=status,
        reason=finding.reason,
        message=finding.message[-MAX_MESSAGE:],
        last_transition_time=before.last_transition_time if before and unchanged else rfc3339(snapshot.now),
        observed_generation=snapshot.pool.metadata.generation,
    )


def _events(snapshot: Snapshot, status: RewardPoolStatus, leaving: Leaving, rollout: Rollout) -> list[Event]:
    """One event for each change people want to find in `kubectl describe`."""
    old = snapshot.pool.status
    events: list[Event] = []
    if status.scaling and (old.scaling is None or old.scaling.desired != status.scaling.desired):
        before = old.scaling.desired if old.scaling else 0
        message = f"from {before} to {status.scaling.desired} replicas: {status.scaling.reason}"
        events.append(Event(type="Normal", reason="Scaled", message=message))
    if rollout.old and old.revision and old.revision != status.revision:
        message = f"revision {old.revision} to {status.revision}"
        events.append(Event(type="Normal", reason="RolloutStarted", message=message))
    events += [Event(type="Normal", reason="Draining", message=f"{name} leaves the routers") for name in leaving.drain]
    return events + _condition_events(old, status)


_WORTH_TELLING: dict[ConditionType, frozenset[str]] = {
    "Progressing": frozenset({NO_ROOM, DEADLINE_EXCEEDED}),
}
"""Reasons that make an event; a condition that is not listed makes one at every change of status or reason."""


def _condition_events(old: RewardPoolStatus, status: RewardPoolStatus) -> list[Event]:
    events = []
    for kind in _TOLD:
        now, before = status.condition(kind), old.condition(kind)
        if now is None or (before is not None and (now.status, now.reason) == (before.status, before.reason)):
            continue
        if now.reason not in _WORTH_TELLING.get(kind, frozenset({now.reason})):
            continue
        healthy = (now.status == "True") == (kind == "Ready")
        if healthy and before is None and kind != "Ready":
            continue
        # A pool that has never been ready yet is starting, which is no warning.
        warning = not healthy and (before is not None or kind != "Ready")
        name = kind if now.status == "True" else f"Not{kind}"
        events.append(
            Event(type="Warning" if warning else "Normal", reason=name, message=f"{now.reason}: {now.message}")
        )
    return events
