"""Step 1: how many replicas are wanted, and why."""

from rewardpool_api.autoscaling import AutoscalingSpec
from rewardpool_api.status import LoadStatus, ScalingStatus
from rewardpool_operator.autoscaler import demand
from rewardpool_operator.autoscaler.recommend import Recommendation, recommend, with_change
from rewardpool_operator.autoscaler.signals import Signals, Start
from rewardpool_operator.snapshot import Snapshot


def wanted_replicas(snapshot: Snapshot, load: LoadStatus | None) -> Recommendation:
    """The wanted number with its reason, its state and the history of changes; and what became of demands."""
    spec = snapshot.pool.spec
    scaling = spec.autoscaling
    if spec.suspend:
        return _given(snapshot, 0, "spec.suspend is set")
    if scaling is None:
        return _given(snapshot, _fixed(spec.replicas), "spec.replicas")
    if scaling.is_external:
        bounded = max(scaling.min_replicas, min(scaling.max_replicas, _fixed(spec.replicas)))
        return _given(snapshot, bounded, "spec.replicas, set from outside, within bounds")
    return _decided(snapshot, scaling, load)


def _decided(snapshot: Snapshot, scaling: AutoscalingSpec, load: LoadStatus | None) -> Recommendation:
    active = [worker for worker in snapshot.workers if worker.active]
    signals = Signals(
        now=snapshot.now,
        pool=snapshot.pool.metadata.name,
        load=load,
        replicas=len(active),
        serving=sum(worker.answering for worker in active),
        unschedulable=next((worker.unschedulable for worker in active if worker.unschedulable), None),
        throughputs=tuple(worker.throughput for worker in active if worker.throughput is not None),
        starts=tuple(
            Start(worker=worker.name, seconds=worker.start_seconds)
            for worker in active
            if worker.start_seconds is not None
        ),
        announcements=snapshot.announcements,
        others=snapshot.claims,
    )
    return recommend(scaling=scaling, signals=signals, previous=snapshot.pool.status.scaling)


def _given(snapshot: Snapshot, replicas: int, reason: str) -> Recommendation:
    """A number that somebody else chose. What was learned is kept for when the load decides again."""
    previous = snapshot.pool.status.scaling
    kept = previous or ScalingStatus(desired=replicas, reason=reason)
    decided = kept.model_copy(
        update={
            "desired": replicas,
            "reason": reason,
            "asked": None,
            "limit": None,
            "idle_since": None,
            "window": [],
        }
    )
    if previous is None or previous.desired != replicas:
        decided = decided.model_copy(update={"history": with_change(kept.history, decided, snapshot.now)})
    return Recommendation(scaling=decided, demands=demand.told(snapshot.announcements, now=snapshot.now))


def _fixed(replicas: int | None) -> int:
    return 1 if replicas is None else replicas
