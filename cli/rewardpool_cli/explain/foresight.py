"""Explanations beyond the present requests: announcements, the load's beat, and measurements."""

from rewardpool_api.autoscaling import AutoscalingSpec
from rewardpool_api.first_score import FirstScoreStatus
from rewardpool_api.status import DemandStatus, ScalingStatus
from rewardpool_cli.explain.advice import Explanation, explanation
from rewardpool_cli.explain.evidence import Evidence, counted, duration
from rewardpool_control.autoscaler import bursts, starts


def foresight_explanations(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> list[Explanation]:
    """Training jobs, the beat of the load, and the figures that policies use."""
    heeds = any(policy.demand is not None for policy in spec.combined)
    found = _jobs(evidence, heeds=heeds)
    if heeds and not _in_state(evidence, "Live"):
        found.append(_beat(evidence, spec, scaling))
    if any(policy.uses_service_rate for policy in spec.combined):
        found.append(_measured(evidence, spec, scaling))
    first = evidence.pool.status.first_score
    return [*found, _first_score(evidence, first)] if first is not None else found


def _in_state(evidence: Evidence, state: str) -> list[DemandStatus]:
    return [demand for demand in evidence.pool.status.demands if demand.state == state]


def _jobs(evidence: Evidence, *, heeds: bool) -> list[Explanation]:
    found = []
    live, lapsed, ignored = (_in_state(evidence, state) for state in ("Live", "Lapsed", "Ignored"))
    if ignored:
        said = "\n".join(f"{demand.job}: {demand.message}" for demand in ignored)
        found.append(
            explanation(evidence, "DemandIgnored", said=said, announcements=counted(len(ignored), "announcement"))
        )
    if live:
        said, jobs = "\n".join(_job(evidence, demand) for demand in live), counted(len(live), "training job")
        found.append(explanation(evidence, "Jobs" if heeds else "JobsNotHeeded", said=said, jobs=jobs))
    if lapsed:
        gone, reaches = ", ".join(demand.job for demand in lapsed), ", and reaches the API server"
        found.append(explanation(evidence, "JobsGone", gone=gone, reaches="" if evidence.is_local else reaches))
    return found


def _job(evidence: Evidence, demand: DemandStatus) -> str:
    parts = [demand.phase or "Live"]
    if demand.samples is not None:
        tokens = "" if demand.tokens is None else f" with {demand.tokens} tokens"
        parts.append(f"{demand.samples} samples{tokens} a burst")
    if demand.next_burst is not None:
        parts.append(f"the next burst {evidence.in_words(demand.next_burst)}")
    elif demand.phase != "Rollout":
        parts.append("it does not know yet when the next burst comes")
    parts.append(f"{counted(demand.replicas, 'replica')} asked for on its behalf")
    parts += ["its trainer does nothing but wait"] if demand.stalled else []
    parts += [demand.message] if demand.message else []
    return f"{demand.job}: {'; '.join(parts)}"


def _beat(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    learns = any(policy.demand is not None and policy.demand.learn for policy in spec.combined)
    expected = bursts.expected(scaling.bursts, now=evidence.now) if learns else None
    if expected is None:
        unforeseen = ", and from the load none can be foreseen now" if learns else ""
        return explanation(evidence, "NoBurst", unforeseen=unforeseen)
    return explanation(
        evidence,
        "NextBurst",
        every=duration(expected.every_seconds),
        worth=counted(expected.replicas, "replica"),
        begins=evidence.in_words(expected.begins),
    )


def _first_score(evidence: Evidence, first: FirstScoreStatus) -> Explanation:
    parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in first.parts if seconds)
    row = "FirstScore" if first.waits_for is None else "FirstScoreAwaited"
    return explanation(evidence, row, said=parts, first=first, when=evidence.in_words(first.since))


def _measured(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    slowest = max((start.seconds for start in scaling.starts), default=None)
    start = "no start was seen yet" if slowest is None else f"the slowest of the last starts took {duration(slowest)}"
    lead = duration(starts.lead_seconds(scaling.starts))
    ahead = f"{start}, so replicas for a burst are asked for {lead} before it"
    rate = scaling.service_rate
    if rate is None:
        row = "NotMeasured" if spec.service_rate.initial_per_replica is None else "Assumed"
        return explanation(evidence, row, spec=spec, ahead=ahead)
    return explanation(
        evidence,
        "Measured",
        rate=rate,
        tokens=f" of {rate.tokens_per_sample:.0f} tokens" if rate.tokens_per_sample else "",
        measurements=counted(len(rate.measured), "measurement"),
        measured_at=evidence.in_words(rate.time),
        ahead=ahead,
    )
