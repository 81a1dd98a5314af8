"""Step 1: how many replicas are wanted, and why."""

from rewardpool_api.status import LoadStatus, ScalingDecision, ScalingStatus
from rewardpool_operator.autoscaler import queue_depth
from rewardpool_operator.snapshot import Snapshot
from rewardpool_operator.times import rfc3339

HISTORY = 10
"""Changes kept in the status."""


def observed_load(snapshot: Snapshot) -> LoadStatus | None:
    """Requests at the routers, summed over the replicas; None when any router's figures are missing.

    A router that is starting holds no request yet and is left out; one that stopped answering may hold many, so the
    figures are then missing and not smaller.
    """
    routers = [router for router in snapshot.routers if not router.deleting]
    if not routers or not all(router.answering for router in routers):
        return None
    in_flight = waiting = 0
    for router in routers:
        if router.registered is None or router.waiting is None:
            return None
        for entry in router.registered:
            if entry.in_flight is None:
                return None
            in_flight += entry.in_flight
        waiting += router.waiting
    return LoadStatus(in_flight=in_flight, waiting=waiting)


def wanted_replicas(snapshot: Snapshot, load: LoadStatus | None) -> ScalingStatus:
    """The wanted number with its reason, its state and the history of changes."""
    previous = snapshot.pool.status.scaling
    decision = _decision(snapshot, load, previous)
    if previous is not None and previous.desired == decision.desired:
        return decision
    change = ScalingDecision(time=rfc3339(snapshot.now), replicas=decision.desired, reason=decision.reason)
    history = [*(previous.history if previous else []), change][-HISTORY:]
    return decision.model_copy(update={"history": history})


def _decision(snapshot: Snapshot, load: LoadStatus | None, previous: ScalingStatus | None) -> ScalingStatus:
    spec = snapshot.pool.spec
    history = previous.history if previous else []
    if spec.suspend:
        return ScalingStatus(desired=0, reason="spec.suspend is set", history=history)
    scaling = spec.autoscaling
    if scaling is None:
        return ScalingStatus(desired=_fixed(spec.replicas), reason="spec.replicas", history=history)
    policy = next((policy.queue_depth for policy in scaling.combined), None)
    if policy is None:
        bounded = max(scaling.min_replicas, min(scaling.max_replicas, _fixed(spec.replicas)))
        return ScalingStatus(desired=bounded, reason="spec.replicas, set from outside, within bounds", history=history)
    return queue_depth.recommend(
        scaling=scaling,
        policy=policy,
        load=load,
        previous=previous,
        replicas=sum(worker.active for worker in snapshot.workers),
        now=snapshot.now,
    )


def _fixed(replicas: int | None) -> int:
    return 1 if replicas is None else replicas
