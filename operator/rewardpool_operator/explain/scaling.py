"""Why a pool has the size it has, and what would change it."""

from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import ScalingStatus
from rewardpool_operator.explain.evidence import Cause, Evidence, Explanation


def scaling_explanations(evidence: Evidence) -> list[Explanation]:
    """Why the wanted number of replicas is what it is; nothing for a pool that is suspended or was never looked at."""
    scaling = evidence.pool.status.scaling
    if scaling is None or evidence.pool.spec.suspend:
        return []
    if evidence.pool.spec.autoscaling is None:
        return [_fixed(evidence, scaling)]
    if evidence.pool.spec.autoscaling.is_external:
        return [_external(evidence, scaling)]
    return _by_queue(evidence, scaling)


def _fixed(evidence: Evidence, scaling: ScalingStatus) -> Explanation:
    follow_load = "for a size that follows the load, give spec.autoscaling in place of spec.replicas"
    if scaling.desired == 0:
        what = "The pool is at zero replicas, because spec.replicas is 0: no request will change that"
        steps = (evidence.command("scale", "1"), follow_load)
        return Explanation(cause=Cause.AT_ZERO, kind="problem", what=what, next=steps)
    what = f"{_replicas(scaling.desired)} wanted, because spec.replicas says so: no load changes that"
    return Explanation(cause=Cause.SIZE, kind="note", what=what, next=(follow_load,))


def _external(evidence: Evidence, scaling: ScalingStatus) -> Explanation:
    spec = evidence.pool.spec
    asked = 1 if spec.replicas is None else spec.replicas
    bounds = f"{spec.autoscaling.min_replicas} to {spec.autoscaling.max_replicas}" if spec.autoscaling else ""
    what = f"{_replicas(scaling.desired)} wanted: policy External, so HPA, KEDA or a person writes spec.replicas"
    if asked != scaling.desired:
        what += f"; it says {asked}, and the bounds are {bounds}"
    namespace = evidence.pool.metadata.namespace
    return Explanation(
        cause=Cause.AT_ZERO if scaling.desired == 0 else Cause.SIZE,
        kind="note",
        what=what,
        next=(f"kubectl get hpa,scaledobject -n {namespace}",),
    )


def _by_queue(evidence: Evidence, scaling: ScalingStatus) -> list[Explanation]:
    autoscaling = evidence.pool.spec.autoscaling
    active = evidence.pool.status.condition("ScalingActive")
    if autoscaling is None:
        return []
    if active is not None and active.reason == ConditionReason.FIGURES_MISSING:
        return [
            Explanation(
                cause=Cause.FIGURES_MISSING,
                kind="problem",
                what=f"The size is held at {scaling.desired}: a router does not say how many requests it has",
                said=active.message,
                next=(
                    evidence.command("logs", "--component router"),
                    "see whether a NetworkPolicy keeps the operator from ports 8080 and 9090 of the routers",
                ),
            )
        ]
    if scaling.desired == 0:
        return [
            Explanation(
                cause=Cause.AT_ZERO,
                kind="note",
                what="The pool is at zero replicas, since nobody asked anything; the first request brings it back"
                " and waits for a worker's start",
                said=scaling.reason,
                next=("keep one: " + evidence.patch('{"autoscaling":{"minReplicas":1}}'),),
            )
        ]
    return _of_running(evidence, scaling)


def _of_running(evidence: Evidence, scaling: ScalingStatus) -> list[Explanation]:
    autoscaling, load = evidence.pool.spec.autoscaling, evidence.pool.status.load
    policy = next((policy.queue_depth for policy in autoscaling.combined), None) if autoscaling else None
    if autoscaling is None or policy is None:
        return []
    target = policy.target_per_replica
    requests = load.in_flight + load.waiting if load else 0
    if scaling.desired == autoscaling.max_replicas and requests > target * scaling.desired:
        return [
            Explanation(
                cause=Cause.AT_MOST,
                kind="problem",
                what=f"The pool does not grow: {requests} requests are more than {scaling.desired} replicas with"
                f" {target} each, and spec.autoscaling.maxReplicas is {autoscaling.max_replicas}",
                said=scaling.reason,
                next=(evidence.patch(f'{{"autoscaling":{{"maxReplicas":{2 * autoscaling.max_replicas}}}}}'),),
            )
        ]
    needed = max(autoscaling.min_replicas, -(-requests // target))
    if load is not None and needed < scaling.desired:
        window = autoscaling.scale_down.stabilization_seconds
        return [
            Explanation(
                cause=Cause.HELD_FOR_A_WHILE,
                kind="note",
                what=f"{_replicas(scaling.desired)} kept, though {needed} would do for {requests} requests:"
                f" the pool shrinks to the most that was needed within {window} s",
                said=scaling.reason,
                next=("for a faster way down, lower spec.autoscaling.scaleDown.stabilizationSeconds",),
            )
        ]
    what = f"{_replicas(scaling.desired)} wanted, for {requests} requests and {target} per replica"
    return [Explanation(cause=Cause.SIZE, kind="note", what=what, said=scaling.reason)]


def _replicas(count: int) -> str:
    return "1 replica is" if count == 1 else f"{count} replicas are"
