"""Explanation of a pool's size: the wanted one, its limits, and what would change it."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from rewardpool_api.autoscaling import AutoscalingSpec, BudgetSpec, StepSpec
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import ScalingStatus
from rewardpool_cli.explain.advice import Explanation, explanation
from rewardpool_cli.explain.evidence import Evidence, counted, duration
from rewardpool_cli.explain.foresight import foresight_explanations

MOST_REPLICAS: Final = 10_000


def scaling_explanations(evidence: Evidence) -> list[Explanation]:
    """Return why the wanted number of replicas is what it is; empty for a pool that is suspended or never seen."""
    scaling, spec = evidence.pool.status.scaling, evidence.pool.spec.autoscaling
    if scaling is None or evidence.pool.spec.suspend:
        return []
    budget = [_budget(evidence, spec.budget if spec else None, scaling)] if scaling.limit == "Budget" else []
    if spec is None:
        fixed = "FixedAtZero" if scaling.desired == 0 else "Fixed"
        return budget or [explanation(evidence, fixed, replicas=_replicas(scaling))]
    active = evidence.pool.status.condition("ScalingActive")
    found = []
    if active is not None and active.reason == ConditionReason.BUDGET_DISAGREES:
        found.append(explanation(evidence, "BudgetDisagrees", said=active.message))
    if spec.is_external:
        return [*found, _external(evidence, spec, scaling), *budget]
    if active is not None and active.reason == ConditionReason.METRICS_UNAVAILABLE:
        found.append(explanation(evidence, "MetricsUnavailable", said=active.message, scaling=scaling))
    else:
        found += budget or [_decided(evidence, spec, scaling)]
    return found + foresight_explanations(evidence, spec, scaling)


def _external(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    stated, row, bounds = evidence.pool.spec.replicas, "External", ""
    if stated is None:
        row = "ExternalNotWritten"
    elif scaling.desired == 0:
        row = "ExternalAtZero"
    if stated != scaling.desired:
        bounds = f"; it says {stated}, and the bounds are {spec.min_replicas} to {spec.max_replicas}"
    return explanation(evidence, row, scaling=scaling, replicas=_replicas(scaling), bounds=bounds)


def _budget(evidence: Evidence, own: BudgetSpec | None, scaling: ScalingStatus) -> Explanation:
    # Windows and steps may want more than the policies do.
    asked, desired, load = _asked(scaling), scaling.desired, evidence.pool.status.load
    row = "BudgetOverNamespaces"
    if own is not None:
        row = "WholeBudget" if desired >= own.max_replicas else "Budget"
    found = explanation(
        evidence,
        row,
        said=scaling.reason,
        budgeted=counted(desired, "replica"),
        of_asked=f" of the {asked} that are asked for" if asked > desired else "",
        budget=f"budget {own.name}, which it shares with other pools," if own else "a budget over namespaces",
        higher=own.priority + 1 if own else None,
        one_more=desired + 1,
    )
    requests = load.in_flight + load.waiting if load else 0
    return found if requests else replace(found, kind="note")


def _decided(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    asked = _asked(scaling)
    match scaling.limit:
        case "MaxReplicas":
            # Where no more are asked for, a window or a step holds, or maxReplicas was raised.
            row = "AtMost" if asked > spec.max_replicas else "NoMoreNow"
        case None | "MetricsUnavailable" | "Unschedulable":
            row = "AtZero" if scaling.desired == 0 else "Size"
        case limit:
            row = limit
    grows = asked > scaling.desired
    idle = evidence.seconds_since(scaling.idle_since) or 0
    return explanation(
        evidence,
        row,
        said=scaling.reason,
        spec=spec,
        replicas=_replicas(scaling),
        asked=asked,
        room=min(asked, MOST_REPLICAS),
        fewer=min(asked, spec.min_replicas - 1),
        direction="scaleUp" if grows else "scaleDown",
        step=_step_in_words((spec.scale_up if grows else spec.scale_down).step),
        window_left=_window_left(evidence, spec, scaling),
        cooldown_left=duration(max(0, spec.cooldown_seconds - idle)),
        idle=duration(idle),
        by="as" if len(spec.combined) == 1 else "the most that one of",
        unplaced="; one that fits nowhere is neither asked for again nor waited for"
        if scaling.limit == "Unschedulable"
        else "",
    )


def _step_in_words(step: StepSpec | None) -> str:
    if step is None:
        return ""
    parts = [counted(step.replicas, "replica")] if step.replicas is not None else []
    parts += [f"{step.percent} %"] if step.percent is not None else []
    return f" lets {' or '.join(parts)} change within {step.period_seconds} s"


def _window_left(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> str:
    ends = [entry.time for entry in scaling.window[:-1] if entry.replicas >= scaling.desired]
    window = timedelta(seconds=spec.scale_down.stabilization_window_seconds)
    rest = (max(ends) + window - evidence.now).total_seconds() if ends else 0
    return f", for {duration(rest)} more" if rest > 0 else ""


def _asked(scaling: ScalingStatus) -> int:
    return scaling.desired if scaling.recommended_replicas is None else scaling.recommended_replicas


def _replicas(scaling: ScalingStatus) -> str:
    return f"{counted(scaling.desired, 'replica')} {'is' if scaling.desired == 1 else 'are'}"
