"""Explanations beyond the present requests: announcements, the load's beat, and measurements."""

from rewardpool_api.autoscaling import AutoscalingSpec
from rewardpool_api.first_score import FirstScoreStatus
from rewardpool_api.status import DemandStatus, ScalingStatus
from rewardpool_cli.explain.evidence import Cause, Evidence, Explanation, counted, duration
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
        found.append(
            Explanation(
                cause=Cause.DEMAND_IGNORED,
                kind="problem",
                what=f"{counted(len(ignored), 'announcement')} cannot be understood, and nothing is done for it",
                said="\n".join(f"{demand.job}: {demand.message}" for demand in ignored),
                next=("correct what announces it; jobs that use RewardPool's client announce what is right",),
            )
        )
    if live:
        add = 'add {"type":"Demand","demand":{}} to spec.autoscaling.policies, to have the fleet ready for them'
        found.append(
            Explanation(
                cause=Cause.JOBS,
                kind="note",
                what=f"The pool goes by what {counted(len(live), 'training job')} said of the next bursts"
                if heeds
                else f"Nothing is done for what {counted(len(live), 'training job')} said of the next bursts",
                said="\n".join(_job(evidence, demand) for demand in live),
                next=() if heeds else (add,),
            )
        )
    if lapsed:
        jobs = ", ".join(demand.job for demand in lapsed)
        found.append(
            Explanation(
                cause=Cause.JOBS_GONE,
                kind="note",
                what=f"What was announced does not count any more, since it was not renewed: {jobs}",
                next=("see whether the job still runs, and reaches the API server",) if not evidence.is_local else (),
            )
        )
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
    steps = ("training jobs that use RewardPool's client announce by themselves; see docs/autoscaling.md",)
    learns = any(policy.demand is not None and policy.demand.learn for policy in spec.combined)
    expected = bursts.expected(scaling.bursts, now=evidence.now) if learns else None
    if expected is None:
        beat = ", and from the load none can be foreseen now" if learns else ""
        what = f"No training job announces a burst{beat}: nothing is started ahead of requests"
        return Explanation(cause=Cause.NEXT_BURST, kind="note", what=what, next=steps)
    worth = counted(expected.replicas, "replica")
    what = (
        f"No training job announces a burst, but they come about every {duration(expected.every_seconds)}: the next"
        f" one, worth {worth}, is expected {evidence.in_words(expected.begins)}"
    )
    return Explanation(cause=Cause.NEXT_BURST, kind="note", what=what, next=steps)


def _first_score(evidence: Evidence, first: FirstScoreStatus) -> Explanation:
    parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in first.parts if seconds)
    if first.waits_for is not None:
        what = f"The first request has waited for its score for {first.seconds:.1f} s, and waits for {first.waits_for}"
    else:
        when = evidence.in_words(first.since)
        what = f"The last request that found the pool at zero, {when}, had its score after {first.seconds:.1f} s"
    return Explanation(cause=Cause.FIRST_SCORE, kind="note", what=what, said=parts)


def _measured(evidence: Evidence, spec: AutoscalingSpec, scaling: ScalingStatus) -> Explanation:
    lead = duration(starts.lead_seconds(scaling.starts))
    slowest = max((start.seconds for start in scaling.starts), default=None)
    start = "no start was seen yet" if slowest is None else f"the slowest of the last starts took {duration(slowest)}"
    ahead = f"{start}, so replicas for a burst are asked for {lead} before it"
    rate, initial = scaling.service_rate, spec.service_rate.initial_per_replica
    give = "where it is known, give spec.autoscaling.serviceRate.initialPerReplica, in requests per second"
    if rate is not None:
        measured = f"by {counted(len(rate.measured), 'measurement')}, the last one {evidence.in_words(rate.time)}"
        tokens = f" of {rate.tokens_per_sample:.0f} tokens" if rate.tokens_per_sample else ""
        what = f"A busy replica answers {rate.samples_per_second:.3g} requests{tokens} in a second {measured}; {ahead}"
        return Explanation(cause=Cause.MEASURED, kind="note", what=what)
    if initial is not None:
        what = f"What a replica does was not measured yet: {initial:g} requests in a second are taken for it; {ahead}"
        return Explanation(cause=Cause.MEASURED, kind="note", what=what)
    what = f"What a replica does was not measured yet, and is found out by the first burst; {ahead}"
    return Explanation(cause=Cause.MEASURED, kind="note", what=what, next=(give,))
