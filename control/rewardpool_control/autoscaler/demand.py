"""Policy Demand: the fleet is there when a burst begins, and gone when it is not needed.

Every job that lives says what it does and when its next burst comes (`rewardpool_api.demand`). A burst of N samples
that come over `spread` seconds, and shall be scored `drainSeconds` after the last one, is worth

    N / (rate per replica x (spread + drainSeconds))

replicas, by the rate for samples as long as the burst's, where the job says how many tokens it has; and at least what
the job's last bursts were worth at their height (`bursts.py`), because samples do not come evenly. They are asked for

- while the burst goes on, as many to its end as at its beginning: its last samples are what the trainer waits for;
- before it, as early as a start takes (`starts.py`);
- and through the gap, if they are there and the gap is so short that letting them go would save less than a start
  costs: a replica that loads a model holds its GPU and scores nothing.

Bursts of several jobs add up. What requests there are beyond that is answered within `drainSeconds` too. Where no job
says anything, the load's own beat does (`bursts.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rewardpool_api.autoscaling import DemandPolicy, QueueDepthPolicy
from rewardpool_api.demand import MAX_SAMPLES, Demand
from rewardpool_api.status import Burst, DemandStatus
from rewardpool_control.autoscaler import queue_depth
from rewardpool_control.autoscaler.bursts import PAUSE_SECONDS, Expected, usual_worth
from rewardpool_control.autoscaler.proposal import Proposal
from rewardpool_control.autoscaler.service_rate import ServiceRate
from rewardpool_control.autoscaler.signals import Announcement

SHOWN: Final = 32
MAX_PROBLEM: Final = 512  # characters


NO_DEMAND_POLICY: Final = "no policy of the pool is Demand, so nothing is done for it"


@dataclass(frozen=True, kw_only=True)
class FleetState:
    """State of the fleet for the policy."""

    now: datetime
    current: int
    lead_seconds: float
    rate: ServiceRate | None
    """Of one replica; None while unknown."""
    queue_depth: QueueDepthPolicy | None
    most: int
    bursts: Sequence[Burst] = ()


@dataclass(frozen=True, kw_only=True)
class Plans:
    """Plans for what is to come."""

    proposal: Proposal
    demands: list[DemandStatus]
    is_gap: bool
    """True if every job that announces is between two bursts, and it is known of each when the next one begins."""
    is_quiet: bool = False
    """True if, by the announcements, no job sends samples now or within the next `PAUSE_SECONDS`."""


def plans(
    policy: DemandPolicy, announcements: Sequence[Announcement], beat: Expected | None, *, fleet: FleetState
) -> Plans:
    """Return the plans by the announcements, or by the beat of the load where there are none."""
    jobs = [_job(policy, announcement, fleet) for announcement in announcements]
    demands = [job.status for job in jobs][:SHOWN]
    live = [job for job in jobs if job.status.state == "Live"]
    if live:
        return Plans(
            proposal=_together(live, fleet),
            demands=demands,
            is_gap=all(job.is_in_gap for job in live),
            is_quiet=all(job.is_quiet for job in live),
        )
    if policy.learn and beat is not None:
        return Plans(proposal=_by_the_beat(beat, fleet), demands=demands, is_gap=True)
    return Plans(proposal=Proposal.whole(0, "no request, and no job announces samples"), demands=demands, is_gap=False)


def _together(live: Sequence["_Job"], fleet: FleetState) -> Proposal:
    """Return the demand of all jobs: the sum of their bursts, and at least what they took together before."""
    asking = [job for job in live if job.exact > 0]
    reason = "; ".join(job.reason for job in asking or live)
    exact = sum(job.exact for job in asking)
    due = [job.status.job for job in asking if job.is_due]
    usual = usual_worth(fleet.bursts, due) if len(due) > 1 else 0
    if usual <= exact:
        return Proposal(exact=exact, reason=reason)
    return Proposal.whole(usual, f"{reason}; together {usual} replicas at the height of their last bursts")


def rolling_out(announcements: Sequence[Announcement], *, now: datetime) -> frozenset[str]:
    """Jobs that say that samples of theirs are coming."""
    live = (announcement.demand for announcement in announcements if announcement.is_live(now))
    return frozenset(demand.job for demand in live if demand is not None and demand.phase == "Rollout")


def statuses(announcements: Sequence[Announcement], *, now: datetime) -> list[DemandStatus]:
    """Return the status of the jobs where no policy goes by them."""
    return [_status(announcement, now=now, message=NO_DEMAND_POLICY) for announcement in announcements][:SHOWN]


@dataclass(frozen=True, kw_only=True)
class _Job:
    status: DemandStatus
    exact: float = 0.0
    reason: str = ""
    is_in_gap: bool = False
    is_quiet: bool = False
    is_due: bool = False
    """True if all of it is wanted, and not just what is there."""


def _job(policy: DemandPolicy, announcement: Announcement, fleet: FleetState) -> _Job:
    demand = announcement.demand
    if demand is None or not announcement.is_live(fleet.now):
        return _Job(status=_status(announcement, now=fleet.now))
    begins = _next_burst(demand, announcement.renewed, fleet.now)
    worth, words = _worth(policy, demand, fleet)
    due = _due(worth, begins, demand, fleet) if _comes(demand, announcement.renewed, begins) else 0.0
    exact = min(due, fleet.most)
    cut = f"it is worth {worth:.3g} replicas, and spec.autoscaling.maxReplicas is {fleet.most}: cut to that"
    notes = [announcement.note, cut if worth > fleet.most else ""]
    status = _status(announcement, now=fleet.now, message="; ".join(filter(None, notes)))
    return _Job(
        status=status.model_copy(update={"replicas": Proposal(exact=exact, reason=words).replicas}),
        exact=exact,
        reason=f"job {demand.job}: {words}, {_when(demand, begins)}",
        is_in_gap=demand.phase != "Rollout" and begins is not None,
        is_quiet=begins is not None and begins > fleet.now + timedelta(seconds=PAUSE_SECONDS),
        is_due=due >= worth,
    )


def _status(announcement: Announcement, *, now: datetime, message: str = "") -> DemandStatus:
    demand = announcement.demand
    if demand is None:
        problem = (announcement.problem or "it makes no sense")[:MAX_PROBLEM]
        return DemandStatus(job=announcement.name, state="Ignored", message=problem)
    if not announcement.is_live(now):
        return DemandStatus(
            job=demand.job, state="Ended" if demand.phase == "Ended" else "Lapsed", scores=demand.scores
        )
    begins = _next_burst(demand, announcement.renewed, now)
    return DemandStatus(
        job=demand.job,
        state="Live",
        phase=demand.phase,
        samples=demand.samples,
        tokens=demand.tokens,
        next_burst=None if begins is None or demand.phase == "Rollout" else begins.replace(microsecond=0),
        stalled=demand.stalled,
        score_wait=demand.score_wait,
        scores=demand.scores,
        message=message[:MAX_PROBLEM],
    )


def _next_burst(demand: Demand, renewed: datetime, now: datetime) -> datetime | None:
    """Return when the present burst or the next one begins; None where the job does not know."""
    if demand.phase == "Rollout":
        return now
    if demand.starts_in_seconds is None:
        return None
    return renewed + timedelta(seconds=demand.starts_in_seconds)


def _comes(demand: Demand, renewed: datetime, begins: datetime | None) -> bool:
    """Return whether there is a burst before the job is over; a burst that is there is one, however long it takes."""
    if demand.phase == "Rollout" or demand.ends_in_seconds is None or begins is None:
        return True
    return begins < renewed + timedelta(seconds=demand.ends_in_seconds)


def _worth(policy: DemandPolicy, demand: Demand, fleet: FleetState) -> tuple[float, str]:
    worth, words = _by_samples(policy, demand, fleet)
    usual = usual_worth(fleet.bursts, [demand.job])
    if usual <= worth:
        return worth, words
    return float(usual), f"{words}, and {usual} replicas at the height of the last bursts"


def _by_samples(policy: DemandPolicy, demand: Demand, fleet: FleetState) -> tuple[float, str]:
    if demand.samples is None:
        return 1.0, "an unknown number of samples"
    samples = min(demand.samples, MAX_SAMPLES)
    tokens = demand.tokens / samples if demand.tokens and samples else None
    if fleet.rate is not None:
        seconds = demand.spread_seconds + policy.drain_seconds
        rate = fleet.rate if tokens is None else fleet.rate.for_tokens(tokens)
        return samples / rate.within(seconds), f"{samples} samples in {seconds:g} s, {rate.words}"
    if fleet.queue_depth is not None:
        proposal = queue_depth.propose(fleet.queue_depth, requests=samples, tokens=tokens, noun="samples")
        return proposal.exact, proposal.reason
    return float(min(samples, fleet.most)), f"{samples} samples, and the rate of a replica is not known yet"


def _due(worth: float, begins: datetime | None, demand: Demand, fleet: FleetState) -> float:
    if begins is None:
        # A job that loads may begin at any moment. One that trains and knows no beat yet keeps what it has.
        return worth if demand.phase == "Starting" else min(worth, fleet.current)
    return _due_at(worth, begins, fleet)


def _due_at(worth: float, begins: datetime, fleet: FleetState) -> float:
    ahead = (begins - fleet.now).total_seconds()
    if ahead <= fleet.lead_seconds:
        return worth
    # Let go now, they would have to be asked for again in less time than their start takes.
    return min(worth, fleet.current) if ahead <= 2 * fleet.lead_seconds else 0.0


def _when(demand: Demand, begins: datetime | None) -> str:
    if demand.phase == "Rollout":
        return "which are coming"
    return "some time" if begins is None else f"from {begins:%H:%M:%S} on"


def _by_the_beat(beat: Expected, fleet: FleetState) -> Proposal:
    exact = _due_at(float(beat.replicas), beat.begins, fleet)
    return Proposal(
        exact=exact,
        reason=f"bursts come about every {beat.every_seconds:.0f} s, the next one at {beat.begins:%H:%M:%S}",
    )
