"""The number of replicas: what the policies ask for, in the order in which things may hold it back.

    1  remember        service rate, starts and bursts, as far as they were seen
    2  ask             every policy; the largest ask counts, and one replica where there is any request
    3  tolerance       too small a difference changes nothing
    4  idle            to zero only after cooldownSeconds without a request
    5  window          down to the largest ask of the last while, which is a start's time at least while replicas start
    6  steps, bounds   no more at a time, and no more at all, than the manifest says
    7  budget          no more than other pools leave

4 and 5 guard against not knowing what comes. Between two bursts, where every job that lives has said when its next one
comes, it is known, and they are passed over after `PAUSE_SECONDS` without a request. A client that sends requests which
no job announced is a job that lives and says nothing: after its last request, 4 and 5 hold as ever. Where a router does
not say what it has, what the others say is the least that there is: the number may grow by it, and nothing is ever
taken away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from rewardpool_api.autoscaling import AutoscalingSpec, DemandPolicy
from rewardpool_api.status import DemandStatus, DesiredAt, Limit, ScalingDecision, ScalingStatus
from rewardpool_operator.autoscaler import budget, bursts, demand, drain_time, limits, queue_depth, service_rate, starts
from rewardpool_operator.autoscaler.ask import Ask
from rewardpool_operator.autoscaler.bursts import PAUSE_SECONDS
from rewardpool_operator.autoscaler.demand import Fleet, Plans
from rewardpool_operator.autoscaler.service_rate import ServiceRate
from rewardpool_operator.autoscaler.signals import Signals, in_samples, samples_per_request
from rewardpool_operator.times import from_rfc3339, rfc3339

HISTORY: Final = 10
"""Changes kept in the status."""
MISSING: Final = "metrics of a router are missing, so the size may grow and not shrink"


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What is decided, with the state for the next decision."""

    scaling: ScalingStatus
    demands: list[DemandStatus]


def recommend(*, scaling: AutoscalingSpec, signals: Signals, previous: ScalingStatus | None) -> Recommendation:
    """Decide the wanted number of replicas.

    Args:
        scaling: bounds and policies; not External.
        signals: what is seen now; its requests are taken for as many samples as the jobs say.
        previous: the last decision, None for a new pool.
    """
    each = samples_per_request(signals.announcements, now=signals.now)
    signals = in_samples(signals, each=each)
    before = previous or ScalingStatus(desired=signals.replicas, reason="")
    current = limits.clamp(before.desired, scaling)
    memory, rate, for_requests = _remembered(scaling, signals, before)
    plans = _plans(scaling, signals, memory, rate, current=current)
    memory = _with_unannounced(scaling, signals, memory, plans)
    if for_requests is None or signals.partial:
        sized = _without_metrics(scaling, signals, memory, for_requests, plans, current=current)
    else:
        sized = _with_metrics(scaling, signals, memory, for_requests, plans, current=current)
    sized = _bounded(scaling, signals, sized, history=before.history, current=current)
    sized = _within_budget(scaling, signals, sized, plans, before=before)
    sized = _placed(signals, sized)
    if each > 1:
        sized = replace(sized, reason=f"{sized.reason}; a request has {each:.3g} samples, and counts for as many")
    decided = memory.model_copy(
        update={
            "desired": sized.replicas,
            "recommended_replicas": sized.recommended,
            "reason": sized.reason,
            "limit": sized.limit,
            "idle_since": sized.idle_since,
            "window": sized.window,
        }
    )
    if previous is None or previous.desired != decided.desired:
        decided = decided.model_copy(update={"history": with_change(before.history, decided, signals.now)})
    return Recommendation(scaling=decided, demands=plans.demands)


def with_change(history: Sequence[ScalingDecision], decided: ScalingStatus, now: datetime) -> list[ScalingDecision]:
    """The history with one change more."""
    change = ScalingDecision(time=rfc3339(now), replicas=decided.desired, reason=decided.reason, limit=decided.limit)
    return [*history, change][-HISTORY:]


@dataclass(frozen=True, kw_only=True)
class _Sized:
    """A number on its way through the limits."""

    replicas: int
    recommended: int
    reason: str
    limit: Limit | None = None
    idle_since: str | None = None
    window: list[DesiredAt]

    def limited_to(self, replicas: int, limit: Limit, why: str) -> "_Sized":
        """The number that a limit leaves of it."""
        if replicas == self.replicas:
            return self
        return replace(self, replicas=replicas, limit=limit, reason=f"{self.reason}; {why}")


def _remembered(
    scaling: AutoscalingSpec, signals: Signals, before: ScalingStatus
) -> tuple[ScalingStatus, ServiceRate | None, Ask | None]:
    """Step 1; with the rate, and what the requests that are known of are worth, None while none is known."""
    measured = service_rate.learned(
        before.service_rate, signals.throughputs, spec=scaling.service_rate, now=signals.now
    )
    rate = service_rate.service_rate(measured, spec=scaling.service_rate)
    update: dict[str, object] = {"service_rate": measured, "starts": starts.learned(before.starts, signals.starts)}
    for_requests = None
    if signals.load is not None:
        requests = signals.load.in_flight + signals.load.waiting
        for_requests = _for_requests(scaling, requests, rate, serving=signals.serving)
        policy = _demand_policy(scaling)
        # Where a router does not say what it has, no request at the others ends no burst.
        if policy is not None and policy.learn and not (signals.partial and requests == 0):
            most = scaling.max_replicas
            height = bursts.Height(
                to_answer=min(for_requests.replicas, most),
                to_keep_up=min(rate.to_hold(requests), signals.serving, most) if rate is not None else 0,
                settled_seconds=policy.drain_seconds,
            )
            jobs = demand.rolling_out(signals.announcements, now=signals.now)
            update["bursts"] = bursts.learned(
                before.bursts, requests=requests, height=height, jobs=jobs, now=signals.now
            )
    return before.model_copy(update=update), rate, for_requests


def _with_unannounced(scaling: AutoscalingSpec, signals: Signals, memory: ScalingStatus, plans: Plans) -> ScalingStatus:
    """Remember when requests were last seen that no job announced.

    Figures come late, so the requests of the first `PAUSE_SECONDS` after a burst may still be its own.
    """
    quiet_since = (memory.quiet_since or rfc3339(signals.now)) if plans.is_quiet else None
    unannounced = memory.unannounced
    if unannounced is not None and _seconds_since(unannounced, signals) >= _unannounced_seconds(scaling):
        unannounced = None
    has_requests = signals.answered > 0 or (
        signals.load is not None and signals.load.in_flight + signals.load.waiting > 0
    )
    if has_requests and quiet_since is not None and _seconds_since(quiet_since, signals) >= PAUSE_SECONDS:
        unannounced = rfc3339(signals.now)
    return memory.model_copy(update={"quiet_since": quiet_since, "unannounced": unannounced})


def _unannounced_seconds(scaling: AutoscalingSpec) -> float:
    """For so long after its last request a client that announces nothing counts as one that lives."""
    return max(scaling.scale_down.stabilization_window_seconds, scaling.cooldown_seconds)


def _demand_policy(scaling: AutoscalingSpec) -> DemandPolicy | None:
    return next((policy.demand for policy in scaling.combined if policy.demand is not None), None)


def _for_requests(scaling: AutoscalingSpec, requests: int, rate: ServiceRate | None, *, serving: int) -> Ask:
    """Step 2, for what is there: the largest ask."""
    asks = [Ask.whole(min(requests, 1), f"{requests} requests" if requests else "no request")]
    for policy in scaling.combined:
        if policy.queue_depth is not None:
            asks.append(queue_depth.ask(policy.queue_depth, requests=requests))
        if policy.drain_time is not None:
            asks.append(drain_time.ask(policy.drain_time, requests=requests, rate=rate, serving=serving))
        if policy.demand is not None and rate is not None and requests:
            asks.append(drain_time.to_answer(requests, rate=rate, seconds=policy.demand.drain_seconds))
    return _largest(asks)


def _largest(asks: Sequence[Ask]) -> Ask:
    """The largest; of equal ones, the last, which says more."""
    return max(reversed(asks), key=lambda ask: ask.exact)


def _plans(
    scaling: AutoscalingSpec, signals: Signals, memory: ScalingStatus, rate: ServiceRate | None, *, current: int
) -> Plans:
    """Step 2, for what is to come."""
    policies = scaling.combined
    policy = _demand_policy(scaling)
    if policy is None:
        demands = demand.statuses(signals.announcements, now=signals.now)
        return Plans(ask=Ask.whole(0, ""), demands=demands, is_gap=False)
    fleet = Fleet(
        now=signals.now,
        current=current,
        lead_seconds=starts.lead_seconds(memory.starts),
        rate=rate,
        per_replica=next((p.queue_depth.target_per_replica for p in policies if p.queue_depth is not None), None),
        most=scaling.max_replicas,
        bursts=memory.bursts if policy.learn else (),
    )
    beat = bursts.expected(memory.bursts, now=signals.now)
    return demand.plans(policy, signals.announcements, beat, fleet=fleet)


def _without_metrics(
    scaling: AutoscalingSpec,
    signals: Signals,
    memory: ScalingStatus,
    for_requests: Ask | None,
    plans: Plans,
    *,
    current: int,
) -> _Sized:
    """Nothing is taken away; what the known requests are worth, and what a job announced, may be added."""
    known = for_requests or Ask.whole(0, MISSING)
    is_near = limits.within_tolerance(known, current=current, percent=scaling.tolerance_percent)
    ask = plans.ask if is_near else _largest([known, plans.ask])
    idle_since = None if known.exact > 0 else memory.idle_since
    if ask.replicas <= current:
        limit: Limit | None = "MetricsUnavailable" if ask.replicas < current else None
        return _Sized(
            replicas=current,
            recommended=ask.replicas,
            reason=MISSING,
            limit=limit,
            idle_since=idle_since,
            window=memory.window,
        )
    seconds = _window_seconds(scaling, signals, memory)
    return _Sized(
        replicas=ask.replicas,
        recommended=ask.replicas,
        reason=f"{ask.reason}; {MISSING}",
        idle_since=idle_since,
        window=limits.window(memory.window, ask.replicas, now=signals.now, seconds=seconds),
    )


def _with_metrics(
    scaling: AutoscalingSpec, signals: Signals, memory: ScalingStatus, for_requests: Ask, plans: Plans, *, current: int
) -> _Sized:
    """Steps 3 to 5."""
    # The band is for requests, which come and go. What is announced for later is known, and had in full.
    is_near = limits.within_tolerance(for_requests, current=current, percent=scaling.tolerance_percent)
    stays = is_near and plans.ask.replicas <= current
    ask = plans.ask if is_near and not stays else _largest([for_requests, plans.ask])
    sized = _Sized(replicas=ask.replicas, recommended=ask.replicas, reason=ask.reason, window=[])
    if stays:
        sized = sized.limited_to(current, "Tolerance", f"{current} are near enough")
    is_gap = False
    if for_requests.exact == 0:
        was_idle = None if signals.answered else memory.idle_since
        idle_since = was_idle or rfc3339(signals.now)
        sized = replace(sized, idle_since=idle_since)
        idle_seconds = _seconds_since(idle_since, signals)
        # A gap in which there are requests is none.
        is_gap = plans.is_gap and memory.unannounced is None and idle_seconds >= PAUSE_SECONDS
        if sized.replicas == 0 and scaling.min_replicas == 0 and not is_gap:
            if idle_seconds >= scaling.cooldown_seconds:
                return replace(sized, reason=f"no request for {scaling.cooldown_seconds} s")
            why = f"none since {sized.idle_since}, and to zero after {scaling.cooldown_seconds} s"
            sized = sized.limited_to(min(1, current), "CooldownSeconds", why)
    return _through_window(scaling, signals, memory, sized, heeded=not is_gap)


def _seconds_since(time: str, signals: Signals) -> float:
    return (signals.now - from_rfc3339(time)).total_seconds()


def _through_window(
    scaling: AutoscalingSpec, signals: Signals, memory: ScalingStatus, sized: _Sized, *, heeded: bool
) -> _Sized:
    """Step 5. A window that is passed over is kept up nevertheless: the next pass may need it."""
    seconds = _window_seconds(scaling, signals, memory)
    window = limits.window(memory.window, sized.replicas, now=signals.now, seconds=seconds)
    sized = replace(sized, window=window)
    most = max(entry.replicas for entry in window)
    return sized.limited_to(most, "Window", f"{most} were wanted within {seconds:g} s") if heeded else sized


def _window_seconds(scaling: AutoscalingSpec, signals: Signals, memory: ScalingStatus) -> float:
    """The window, and while replicas start no less than a start takes.

    Those that start are the first to be taken back. With a shorter window, load that comes and goes would begin starts
    for ever and end none.
    """
    window = float(scaling.scale_down.stabilization_window_seconds)
    is_starting = signals.serving < signals.replicas
    return max(window, starts.lead_seconds(memory.starts)) if is_starting else window


def _bounded(
    scaling: AutoscalingSpec,
    signals: Signals,
    sized: _Sized,
    *,
    history: Sequence[ScalingDecision],
    current: int,
) -> _Sized:
    """Step 6."""
    step = limits.stepped(sized.replicas, current=current, history=history, scaling=scaling, now=signals.now)
    sized = sized.limited_to(step, "Step", f"{step} are as many as a step allows")
    bounded = limits.clamp(sized.replicas, scaling)
    if bounded < sized.replicas:
        return sized.limited_to(bounded, "MaxReplicas", f"maxReplicas is {bounded}")
    return sized.limited_to(bounded, "MinReplicas", f"minReplicas is {bounded}")


def _within_budget(
    scaling: AutoscalingSpec, signals: Signals, sized: _Sized, plans: Plans, *, before: ScalingStatus
) -> _Sized:
    """Step 7."""
    if scaling.budget is None:
        return sized
    left = budget.allowed(
        signals,
        scaling=scaling,
        budget=scaling.budget,
        wanted=sized.replicas,
        demands=plans.demands,
        before=before,
    )
    return sized.limited_to(left.replicas, "Budget", left.reason or f"the budget leaves {left.replicas}")


def _placed(signals: Signals, sized: _Sized) -> _Sized:
    """A worker that fits nowhere is supply on its way, neither asked for again nor waited for: it is only reported."""
    if signals.unschedulable is None or signals.serving >= sized.replicas or sized.limit is not None:
        return sized
    return replace(sized, limit="Unschedulable", reason=f"{sized.reason}; a worker fits nowhere")
