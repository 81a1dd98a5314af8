"""The number of replicas: the policies' wish, and its limits in order.

    1  remember        service rate, starts and bursts, as far as they were seen
    2  proposal        every policy; the largest one counts, and one replica where there is any request
    3  tolerance       too small a difference changes nothing
    4  idle            to zero only after cooldownSeconds without a request
    5  window          down to the largest proposal of the last while, at least a start's time while replicas start
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
from rewardpool_api.times import rfc3339
from rewardpool_control.autoscaler import budget, bursts, demand, drain_time, limits, queue_depth, service_rate, starts
from rewardpool_control.autoscaler.bursts import PAUSE_SECONDS
from rewardpool_control.autoscaler.demand import FleetState, Plans
from rewardpool_control.autoscaler.proposal import Proposal
from rewardpool_control.autoscaler.service_rate import ServiceRate
from rewardpool_control.autoscaler.signals import Signals, in_samples, samples_per_request, tokens_per_sample

HISTORY: Final = 10
MISSING: Final = "metrics of a router are missing, so the size may grow and not shrink"


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Decision, with the state for the next one."""

    scaling: ScalingStatus
    demands: list[DemandStatus]


def recommend(*, scaling: AutoscalingSpec, signals: Signals, previous: ScalingStatus | None) -> Recommendation:
    """Decide the wanted number of replicas, by policies that are not External; a new pool has no previous decision."""
    each = samples_per_request(signals.announcements, now=signals.now)
    signals = in_samples(signals, each=each)
    before = previous or ScalingStatus(desired=signals.replicas, reason="")
    case = _case(scaling, signals, before)
    if case.for_requests is None or signals.partial:
        sized = case.without_metrics()
    else:
        sized = case.with_metrics(case.for_requests)
    sized = case.placed(case.within_budget(case.bounded(sized)))
    if each > 1:
        sized = replace(sized, reason=f"{sized.reason}; a request has {each:.3g} samples, and counts for as many")
    decided = case.memory.model_copy(
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
    return Recommendation(scaling=decided, demands=case.plans.demands)


def with_change(history: Sequence[ScalingDecision], decided: ScalingStatus, now: datetime) -> list[ScalingDecision]:
    """The history with one change more."""
    change = ScalingDecision(time=now, replicas=decided.desired, reason=decided.reason, limit=decided.limit)
    return [*history, change][-HISTORY:]


@dataclass(frozen=True, kw_only=True)
class _Sized:
    replicas: int
    recommended: int
    reason: str
    limit: Limit | None = None
    idle_since: datetime | None = None
    window: list[DesiredAt]

    def limited_to(self, replicas: int, limit: Limit, why: str) -> "_Sized":
        if replicas == self.replicas:
            return self
        return replace(self, replicas=replicas, limit=limit, reason=f"{self.reason}; {why}")


@dataclass(frozen=True, kw_only=True)
class _Case:
    scaling: AutoscalingSpec
    signals: Signals
    before: ScalingStatus
    memory: ScalingStatus
    current: int
    for_requests: Proposal | None
    """Replicas for the known requests; None while none is known."""
    plans: Plans

    def seconds_since(self, time: datetime) -> float:
        return (self.signals.now - time).total_seconds()

    def is_near(self, proposal: Proposal) -> bool:
        """Step 3. The band is for requests, which come and go; what is announced is known, and had in full."""
        return limits.within_tolerance(proposal, current=self.current, percent=self.scaling.tolerance_percent)

    def without_metrics(self) -> _Sized:
        """Return the size without metrics: nothing is taken away; known requests and announcements may add."""
        known = self.for_requests or Proposal.whole(0, MISSING)
        proposal = self.plans.proposal if self.is_near(known) else _largest([known, self.plans.proposal])
        sized = _Sized(
            replicas=max(proposal.replicas, self.current),
            recommended=proposal.replicas,
            reason=MISSING,
            limit="MetricsUnavailable" if proposal.replicas < self.current else None,
            idle_since=None if known.exact > 0 else self.memory.idle_since,
            window=self.memory.window,
        )
        if proposal.replicas <= self.current:
            return sized
        return replace(sized, reason=f"{proposal.reason}; {MISSING}", window=self.window(proposal.replicas))

    def with_metrics(self, for_requests: Proposal) -> _Sized:
        """Steps 3 to 5."""
        scaling, planned = self.scaling, self.plans.proposal
        is_near = self.is_near(for_requests)
        stays = is_near and planned.replicas <= self.current
        proposal = planned if is_near and not stays else _largest([for_requests, planned])
        sized = _Sized(replicas=proposal.replicas, recommended=proposal.replicas, reason=proposal.reason, window=[])
        if stays:
            sized = sized.limited_to(self.current, "Tolerance", f"{self.current} are near enough")
        is_gap = False
        if for_requests.exact == 0:
            was_idle = None if self.signals.answered else self.memory.idle_since
            idle_since = was_idle or self.signals.now
            sized = replace(sized, idle_since=idle_since)
            idle_seconds = self.seconds_since(idle_since)
            # A gap in which there are requests is none.
            is_gap = self.plans.is_gap and self.memory.unannounced is None and idle_seconds >= PAUSE_SECONDS
            if sized.replicas == 0 and scaling.min_replicas == 0 and not is_gap:
                if idle_seconds >= scaling.cooldown_seconds:
                    return replace(sized, reason=f"no request for {scaling.cooldown_seconds} s")
                why = f"none since {rfc3339(idle_since)}, and to zero after {scaling.cooldown_seconds} s"
                sized = sized.limited_to(min(1, self.current), "CooldownSeconds", why)
        # A window that is passed over is kept up nevertheless: the next pass may need it.
        sized = replace(sized, window=self.window(sized.replicas))
        most = max(entry.replicas for entry in sized.window)
        return sized if is_gap else sized.limited_to(most, "Window", f"{most} were wanted within {self.seconds:g} s")

    def window(self, wanted: int) -> list[DesiredAt]:
        """Step 5."""
        return limits.window(self.memory.window, wanted, now=self.signals.now, seconds=self.seconds)

    @property
    def seconds(self) -> float:
        """The window, and while replicas start no less than a start takes."""
        window = float(self.scaling.scale_down.stabilization_window_seconds)
        is_starting = self.signals.serving < self.signals.replicas
        # Those that start are the first to be taken back: with a shorter window, load that comes and goes would begin
        # starts for ever and end none.
        return max(window, starts.lead_seconds(self.memory.starts)) if is_starting else window

    def bounded(self, sized: _Sized) -> _Sized:
        """Step 6."""
        scaling, history, now = self.scaling, self.before.history, self.signals.now
        step = limits.stepped(sized.replicas, current=self.current, history=history, scaling=scaling, now=now)
        sized = sized.limited_to(step, "Step", f"{step} are as many as a step allows")
        bounded = limits.clamp(sized.replicas, scaling)
        if bounded < sized.replicas:
            return sized.limited_to(bounded, "MaxReplicas", f"maxReplicas is {bounded}")
        return sized.limited_to(bounded, "MinReplicas", f"minReplicas is {bounded}")

    def within_budget(self, sized: _Sized) -> _Sized:
        """Step 7."""
        scaling, demands, before = self.scaling, self.plans.demands, self.before
        if scaling.budget is None:
            return sized
        left = budget.allowed(
            self.signals, scaling=scaling, budget=scaling.budget, wanted=sized.replicas, demands=demands, before=before
        )
        return sized.limited_to(left.replicas, "Budget", left.reason or f"the budget leaves {left.replicas}")

    def placed(self, sized: _Sized) -> _Sized:
        """A worker that fits nowhere is supply on its way, neither requested again nor waited for: only reported."""
        if self.signals.unschedulable is None or self.signals.serving >= sized.replicas or sized.limit is not None:
            return sized
        return replace(sized, limit="Unschedulable", reason=f"{sized.reason}; a worker fits nowhere")


def _case(scaling: AutoscalingSpec, signals: Signals, before: ScalingStatus) -> _Case:
    """Steps 1 and 2."""
    now, current, policy = signals.now, limits.clamp(before.desired, scaling), _demand_policy(scaling)
    tokens, spec = tokens_per_sample(signals.announcements, now=now), scaling.service_rate
    measured = service_rate.learned(before.service_rate, signals.throughputs, spec=spec, now=now, tokens=tokens)
    rate = service_rate.service_rate(measured, spec=spec, tokens=tokens)
    update: dict[str, object] = {"service_rate": measured, "starts": starts.learned(before.starts, signals.starts)}
    for_requests, requests = None, 0
    if signals.load is not None:
        requests = signals.load.in_flight + signals.load.waiting
        for_requests = _for_requests(scaling, requests, rate, serving=signals.serving, tokens=tokens)
        # Where a router does not say what it has, no request at the others ends no burst.
        if policy is not None and policy.learn and not (signals.partial and requests == 0):
            most = scaling.max_replicas
            height = bursts.Height(
                to_answer=min(for_requests.replicas, most),
                to_keep_up=min(rate.to_hold(requests), signals.serving, most) if rate is not None else 0,
                settled_seconds=policy.drain_seconds,
            )
            jobs = demand.rolling_out(signals.announcements, now=now)
            update["bursts"] = bursts.learned(before.bursts, requests=requests, height=height, jobs=jobs, now=now)
    memory = before.model_copy(update=update)
    plans = _plans(scaling, signals, memory, rate, current=current)
    case = _Case(
        scaling=scaling,
        signals=signals,
        before=before,
        memory=memory,
        current=current,
        for_requests=for_requests,
        plans=plans,
    )
    return replace(case, memory=_with_unannounced(case, has_requests=signals.answered > 0 or requests > 0))


def _with_unannounced(case: _Case, *, has_requests: bool) -> ScalingStatus:
    """Remember when requests were last seen that no job announced."""
    now, unannounced = case.signals.now, case.memory.unannounced
    # For so long after its last request a client that announces nothing counts as one that lives.
    counted = max(case.scaling.scale_down.stabilization_window_seconds, case.scaling.cooldown_seconds)
    quiet_since = (case.memory.quiet_since or now) if case.plans.is_quiet else None
    if unannounced is not None and case.seconds_since(unannounced) >= counted:
        unannounced = None
    # Figures come late: the requests of the first `PAUSE_SECONDS` after a burst may still be its own.
    if has_requests and quiet_since is not None and case.seconds_since(quiet_since) >= PAUSE_SECONDS:
        unannounced = now
    return case.memory.model_copy(update={"quiet_since": quiet_since, "unannounced": unannounced})


def _demand_policy(scaling: AutoscalingSpec) -> DemandPolicy | None:
    return next((policy.demand for policy in scaling.combined if policy.demand is not None), None)


def _for_requests(
    scaling: AutoscalingSpec, requests: int, rate: ServiceRate | None, *, serving: int, tokens: float | None
) -> Proposal:
    """Step 2, for what is there: the largest proposal."""
    proposals = [Proposal.whole(min(requests, 1), f"{requests} requests" if requests else "no request")]
    for policy in scaling.combined:
        if policy.queue_depth is not None:
            proposals.append(queue_depth.propose(policy.queue_depth, requests=requests, tokens=tokens))
        if policy.drain_time is not None:
            proposals.append(drain_time.propose(policy.drain_time, requests=requests, rate=rate, serving=serving))
        if policy.demand is not None and rate is not None and requests:
            proposals.append(drain_time.to_answer(requests, rate=rate, seconds=policy.demand.drain_seconds))
    return _largest(proposals)


def _largest(proposals: Sequence[Proposal]) -> Proposal:
    """The largest; of equal ones, the last, which says more."""
    return max(reversed(proposals), key=lambda proposal: proposal.exact)


def _plans(
    scaling: AutoscalingSpec, signals: Signals, memory: ScalingStatus, rate: ServiceRate | None, *, current: int
) -> Plans:
    """Step 2, for what is to come."""
    policies = scaling.combined
    policy = _demand_policy(scaling)
    if policy is None:
        demands = demand.statuses(signals.announcements, now=signals.now)
        return Plans(proposal=Proposal.whole(0, ""), demands=demands, is_gap=False)
    fleet = FleetState(
        now=signals.now,
        current=current,
        lead_seconds=starts.lead_seconds(memory.starts),
        rate=rate,
        queue_depth=next((one.queue_depth for one in policies if one.queue_depth is not None), None),
        most=scaling.max_replicas,
        bursts=memory.bursts if policy.learn else (),
    )
    beat = bursts.expected(memory.bursts, now=signals.now)
    return demand.plans(policy, signals.announcements, beat, fleet=fleet)
