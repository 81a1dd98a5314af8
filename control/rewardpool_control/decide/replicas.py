"""Step 1: how many replicas are wanted, and why."""

from rewardpool_api.autoscaling import AutoscalingSpec
from rewardpool_api.status import Limit, ScalingStatus
from rewardpool_control.autoscaler import budget, demand, limits
from rewardpool_control.autoscaler.recommend import Recommendation, recommend, with_change
from rewardpool_control.autoscaler.signals import Signals, Start
from rewardpool_control.decide.load import least_load, missing_metrics
from rewardpool_control.decide.parking import parked_beyond
from rewardpool_control.decide.room import missing_for
from rewardpool_control.snapshot import Snapshot


def wanted_replicas(snapshot: Snapshot) -> Recommendation:
    """The wanted number with its reason, its state and the history of changes; and what became of demands."""
    spec = snapshot.pool.spec
    scaling = spec.autoscaling
    if spec.suspend:
        return _given(snapshot, 0, "spec.suspend is set")
    if scaling is None:
        return _given(snapshot, 1 if spec.replicas is None else spec.replicas, "spec.replicas")
    if scaling.is_external:
        return _from_outside(snapshot, scaling, _signals(snapshot))
    return recommend(scaling=scaling, signals=_signals(snapshot), previous=snapshot.pool.status.scaling)


def _signals(snapshot: Snapshot) -> Signals:
    active = [worker for worker in snapshot.workers if worker.active]
    ending = sum(worker.deleting for worker in snapshot.workers)
    declared = sum(worker_set.replicas for worker_set in snapshot.worker_sets)
    spare = _spare(snapshot, len(active))
    unlisted = sum(worker.answering and not snapshot.is_listed(worker) for worker in active) if spare else 0
    return Signals(
        now=snapshot.now,
        pool=f"{snapshot.pool.metadata.namespace}/{snapshot.pool.metadata.name}",
        load=least_load(snapshot),
        partial=missing_metrics(snapshot) is not None,
        replicas=len(active) - spare,
        serving=sum(worker.answering for worker in active) - min(spare, unlisted),
        unschedulable=next((worker.unschedulable for worker in active if worker.unschedulable), None)
        or missing_for(snapshot, snapshot.revision),
        answered=sum(worker.answered for worker in snapshot.workers),
        throughputs=tuple(worker.throughput for worker in active if worker.throughput is not None),
        starts=tuple(
            Start(worker=worker.name, seconds=worker.start_seconds)
            for worker in sorted(active, key=lambda worker: (worker.created, worker.name))
            if worker.start_seconds is not None
        ),
        announcements=snapshot.announcements,
        there=max(len(snapshot.workers) - ending, declared),
        ending=ending,
        others=snapshot.claims,
    )


def _spare(snapshot: Snapshot, active: int) -> int:
    before = snapshot.pool.status.scaling
    if before is None:
        return 0
    return max(0, min(parked_beyond(snapshot.pool, before.desired), active - before.desired))


def _from_outside(snapshot: Snapshot, scaling: AutoscalingSpec, signals: Signals) -> Recommendation:
    """Policy External: bounds and budget limit spec.replicas, too."""
    recommended, previous = _written_or_there(snapshot), snapshot.pool.status.scaling
    bounded = limits.clamp(recommended, scaling)
    reason = "spec.replicas, set from outside, within bounds"
    if scaling.budget is None:
        return _given(snapshot, bounded, reason)
    demands = demand.statuses(signals.announcements, now=signals.now)
    left = budget.allowed(
        signals, scaling=scaling, budget=scaling.budget, wanted=bounded, demands=demands, before=previous
    )
    if left.reason is None:
        return _given(snapshot, bounded, reason, recommended=recommended)
    return _given(snapshot, left.replicas, f"{reason}; {left.reason}", recommended=recommended, limit="Budget")


def _written_or_there(snapshot: Snapshot) -> int:
    """Return spec.replicas, or while it is not set the present size: a change to policy External changes no size."""
    replicas, previous = snapshot.pool.spec.replicas, snapshot.pool.status.scaling
    if replicas is not None:
        return replicas
    return max(1, previous.desired) if previous else 1


def _given(
    snapshot: Snapshot, replicas: int, reason: str, *, recommended: int | None = None, limit: Limit | None = None
) -> Recommendation:
    """Return a number chosen elsewhere. What was learned is kept for when the load decides again."""
    previous = snapshot.pool.status.scaling
    kept = previous or ScalingStatus(desired=replicas, reason=reason)
    decided = kept.model_copy(
        update={
            "desired": replicas,
            "reason": reason,
            "recommended_replicas": recommended,
            "limit": limit,
            "idle_since": None,
            "window": [],
        }
    )
    if previous is None or previous.desired != replicas:
        decided = decided.model_copy(update={"history": with_change(kept.history, decided, snapshot.now)})
    return Recommendation(scaling=decided, demands=demand.statuses(snapshot.announcements, now=snapshot.now))
