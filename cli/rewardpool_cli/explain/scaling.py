"""Explanation of a pool's size: the wanted one, its limits, and what would change it."""

from datetime import timedelta
from typing import Final

from rewardpool_api.autoscaling import AutoscalingSpec, BudgetSpec, StepSpec
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import ScalingStatus
from rewardpool_cli.explain.evidence import Cause, Evidence, Explanation, counted, duration
from rewardpool_cli.explain.foresight import foresight_explanations

MOST_REPLICAS: Final = 10_000


def scaling_explanations(evidence: Evidence) -> list[Explanation]:
    """Return why the wanted number of replicas is what it is; empty for a pool that is suspended or never seen."""
    scaling, spec = evidence.pool.status.scaling, evidence.pool.spec.autoscaling
    if scaling is None or evidence.pool.spec.suspend:
        return []
    if spec is None:
        return [_budget(evidence, None, scaling) if scaling.limit == "Budget" else _fixed(evidence, scaling)]
    found = _disagreement(evidence)
    if spec.is_external:
        found.append(_external(evidence, spec, scaling))
        return found + ([_budget(evidence, spec.budget, scaling)] if scaling.limit == "Budget" else [])
    found.append(_without_metrics(evidence, scaling) if _lacks_metrics(evidence) else _decided(evidence, spec, scaling))
    return found + foresight_explanations(evidence, spec, scaling)


def _fixed(evidence: Evidence, scaling: ScalingStatus) -> Explanation:
    follow_load = "for a size that follows the load, give spec.autoscaling in place of spec.replicas"
    if scaling.desired == 0:
        what = "The pool is at zero replicas, because spec.replicas is 0: no request will change that"
        steps = (evidence.command("scale", "1"), follow_load)
        return Explanation(cause=Cause.AT_ZERO, kind="problem", what=what, next=steps)
    what = f"{_replicas(scaling.desired)} wanted, because spec.replicas says so: no load changes that"
    return Explanation(cause=Cause.SIZE, kind="note", what=what, next=(follow_load,))


def _external(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    stated = evidence.pool.spec.replicas
    if stated is None:
        wanted = _replicas(scaling.desired)
        what = f"{wanted} wanted: policy External, and nobody wrote spec.replicas, so no HPA can read the scale"
        scale = evidence.command("scale", str(scaling.desired))
        return Explanation(cause=Cause.SIZE, kind="problem", what=what, next=(f"write it once: {scale}",))
    what = f"{_replicas(scaling.desired)} wanted: policy External, so HPA, KEDA or a person writes spec.replicas"
    if stated != scaling.desired:
        what += f"; it says {stated}, and the bounds are {spec.min_replicas} to {spec.max_replicas}"
    namespace = evidence.pool.metadata.namespace
    return Explanation(
        cause=Cause.AT_ZERO if scaling.desired == 0 else Cause.SIZE,
        kind="note",
        what=what,
        next=(f"kubectl get hpa,scaledobject -n {namespace}",),
    )


def _disagreement(evidence: Evidence) -> list[Explanation]:
    active = evidence.pool.status.condition("ScalingActive")
    if active is None or active.reason != ConditionReason.BUDGET_DISAGREES:
        return []
    return [
        Explanation(
            cause=Cause.BUDGET_DISAGREES,
            kind="problem",
            what="The pools of its budget do not agree on how large it is",
            said=active.message,
            next=("give all of them the same spec.autoscaling.budget.maxReplicas",),
        )
    ]


def _lacks_metrics(evidence: Evidence) -> bool:
    active = evidence.pool.status.condition("ScalingActive")
    return active is not None and active.reason == ConditionReason.METRICS_UNAVAILABLE


def _without_metrics(evidence: Evidence, scaling: ScalingStatus) -> Explanation:
    active = evidence.pool.status.condition("ScalingActive")
    return Explanation(
        cause=Cause.METRICS_UNAVAILABLE,
        kind="problem",
        what=f"The size, {scaling.desired}, may grow and not shrink: a router does not say how many requests it has",
        said=active.message if active else "",
        next=(
            evidence.command("logs", "--component router"),
            "see whether a NetworkPolicy keeps the operator from ports 8080 and 9090 of the routers",
        ),
    )


def _decided(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    match scaling.limit:
        case "MaxReplicas" if _recommended(scaling) > spec.max_replicas:
            return _at_most(evidence, spec, scaling)
        case "Budget":
            return _budget(evidence, spec.budget, scaling)
        case "Step":
            return _step(spec, scaling)
        case "Window":
            return _window(evidence, spec, scaling)
        case "CooldownSeconds":
            return _idle(evidence, spec, scaling)
        case "Tolerance":
            return _tolerance(spec, scaling)
        case "MinReplicas":
            return _at_least(evidence, spec, scaling)
        case "MaxReplicas":
            return _all_there_may_be(spec, scaling)
        case _ if scaling.desired == 0:
            return _at_zero(evidence, scaling)
        case _:
            what = f"{_replicas(scaling.desired)} wanted, as {spec.named} wants"
            if len(spec.combined) > 1:
                what = f"{_replicas(scaling.desired)} wanted, the most that one of {spec.named} wants"
            if scaling.limit == "Unschedulable":
                what += "; one that fits nowhere is neither asked for again nor waited for"
            return Explanation(cause=Cause.SIZE, kind="note", what=what, said=scaling.reason)


def _at_zero(evidence: Evidence, scaling: ScalingStatus) -> Explanation:
    return Explanation(
        cause=Cause.AT_ZERO,
        kind="note",
        what="The pool is at zero replicas, since nobody asked anything; the first request brings it back"
        " and waits for a worker's start",
        said=scaling.reason,
        next=("keep one: " + evidence.patch('{"autoscaling":{"minReplicas":1}}'),),
    )


def _at_most(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    recommended = _recommended(scaling)
    room = min(recommended, MOST_REPLICAS)
    return Explanation(
        cause=Cause.AT_MOST,
        kind="problem",
        what=f"The pool does not grow: {recommended} replicas are asked for, and spec.autoscaling.maxReplicas is"
        f" {spec.max_replicas}",
        said=scaling.reason,
        next=(evidence.patch(f'{{"autoscaling":{{"maxReplicas":{room}}}}}'),),
    )


def _all_there_may_be(spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    """Return the note that no more are wanted now: the window or a step holds, or maxReplicas was raised."""
    return Explanation(
        cause=Cause.SIZE,
        kind="note",
        what=f"{_replicas(scaling.desired)} wanted by the last decision, in which maxReplicas was the limit;"
        f" {_recommended(scaling)} are asked for, and spec.autoscaling.maxReplicas is {spec.max_replicas}",
        said=scaling.reason,
    )


def _budget(evidence: Evidence, own: BudgetSpec | None, scaling: ScalingStatus) -> Explanation:
    # Windows and steps may want more than the policies do.
    of = f" of the {_recommended(scaling)} that are asked for" if _recommended(scaling) > scaling.desired else ""
    name = f"budget {own.name}, which it shares with other pools," if own else "a budget over namespaces"
    larger = "ask whoever installed the operator: it is the chart's value budgets"
    return Explanation(
        cause=Cause.BUDGET,
        kind="problem" if _requests(evidence) else "note",
        what=f"The pool has {counted(scaling.desired, 'replica')}{of}: {name} leaves it no more",
        said=scaling.reason,
        next=_ways_to_more(evidence, own, scaling) if own else (larger,),
    )


def _ways_to_more(evidence: Evidence, budget: BudgetSpec, scaling: ScalingStatus) -> tuple[str, ...]:
    larger = "raise spec.autoscaling.budget.maxReplicas, in all pools that name the budget"
    if scaling.desired >= budget.max_replicas:
        return (larger,)
    rank = evidence.patch(f'{{"autoscaling":{{"budget":{{"priority":{budget.priority + 1}}}}}}}')
    keep = evidence.patch(f'{{"autoscaling":{{"minReplicas":{scaling.desired + 1}}}}}')
    return (
        f"see who has the others: kubectl get rewardpools -n {evidence.pool.metadata.namespace} -o wide",
        f"put it before others, as long as no trainer waits for those: {rank}",
        f"have more kept for it at all times: {keep}",
        larger,
    )


def _step(spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    grows = _recommended(scaling) > scaling.desired
    direction, step = ("scaleUp", spec.scale_up.step) if grows else ("scaleDown", spec.scale_down.step)
    return Explanation(
        cause=Cause.STEP,
        kind="waiting",
        what=f"{_replicas(scaling.desired)} wanted on the way to the {_recommended(scaling)} that are asked for:"
        f" spec.autoscaling.{direction}.step{_step_in_words(step)}",
        said=scaling.reason,
        next=(f"for a faster way, raise spec.autoscaling.{direction}.step, or leave it out",),
    )


def _step_in_words(step: StepSpec | None) -> str:
    if step is None:
        return ""
    parts = [counted(step.replicas, "replica")] if step.replicas is not None else []
    parts += [f"{step.percent} %"] if step.percent is not None else []
    return f" lets {' or '.join(parts)} change within {step.period_seconds} s"


def _window(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    seconds = spec.scale_down.stabilization_window_seconds
    ends = [entry.time for entry in scaling.window[:-1] if entry.replicas >= scaling.desired]
    rest = (max(ends) + timedelta(seconds=seconds) - evidence.now).total_seconds() if ends else 0
    until = f", for {duration(rest)} more" if rest > 0 else ""
    return Explanation(
        cause=Cause.HELD_FOR_A_WHILE,
        kind="note",
        what=f"{_replicas(scaling.desired)} kept, though {_recommended(scaling)} would do now: the pool shrinks to the"
        f" most that was asked for within {seconds} s{until}",
        said=scaling.reason,
        next=("for a faster way down, lower spec.autoscaling.scaleDown.stabilizationWindowSeconds",),
    )


def _idle(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    idle = evidence.seconds_since(scaling.idle_since) or 0
    return Explanation(
        cause=Cause.HELD_FOR_A_WHILE,
        kind="note",
        what=f"{_replicas(scaling.desired)} kept for {duration(max(0, spec.cooldown_seconds - idle))} more, though"
        f" nobody has asked anything for {duration(idle)}: spec.autoscaling.cooldownSeconds is {spec.cooldown_seconds}",
        said=scaling.reason,
        next=("to let it go sooner, or keep it longer, change spec.autoscaling.cooldownSeconds",),
    )


def _tolerance(spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    return Explanation(
        cause=Cause.SIZE,
        kind="note",
        what=f"{_replicas(scaling.desired)} kept, though {_recommended(scaling)} are asked for: a difference of"
        f" {spec.tolerance_percent} % is not worth a change",
        said=scaling.reason,
        next=("for a closer size, lower spec.autoscaling.tolerancePercent",),
    )


def _at_least(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    fewer = min(_recommended(scaling), spec.min_replicas - 1)
    return Explanation(
        cause=Cause.SIZE,
        kind="note",
        what=f"{_replicas(scaling.desired)} kept, though {_recommended(scaling)} would do:"
        f" spec.autoscaling.minReplicas is {spec.min_replicas}",
        said=scaling.reason,
        next=("let it have fewer: " + evidence.patch(f'{{"autoscaling":{{"minReplicas":{fewer}}}}}'),),
    )


def _recommended(scaling: ScalingStatus) -> int:
    return scaling.desired if scaling.recommended_replicas is None else scaling.recommended_replicas


def _requests(evidence: Evidence) -> int:
    load = evidence.pool.status.load
    return load.in_flight + load.waiting if load else 0


def _replicas(count: int) -> str:
    return f"{counted(count, 'replica')} {'is' if count == 1 else 'are'}"
