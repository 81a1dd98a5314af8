"""Policy DrainTime: as many replicas as answer what is there within a time, at the measured rate of one replica.

    (in flight + waiting) / (rate per replica x targetSeconds)

Until a rate is known, one replica more than serve is wanted while there are so many requests: the first ones show
the rate.
"""

from rewardpool_api.autoscaling import DrainTimePolicy
from rewardpool_control.autoscaler.proposal import Proposal
from rewardpool_control.autoscaler.service_rate import ServiceRate


def propose(policy: DrainTimePolicy, *, requests: int, rate: ServiceRate | None, serving: int) -> Proposal:
    """Return the replicas for so many requests at the routers; `rate` is one replica's, None while it is unknown."""
    if requests == 0:
        return Proposal.whole(0, "no request")
    if rate is None:
        reason = f"{requests} requests, and the rate of a replica is not known yet"
        return Proposal.whole(min(requests, serving + 1), reason)
    return to_answer(requests, rate=rate, seconds=policy.target_seconds)


def to_answer(requests: int, *, rate: ServiceRate, seconds: float) -> Proposal:
    """Return the replicas that answer so many requests in so many seconds."""
    return Proposal(
        exact=requests / rate.within(seconds),
        reason=f"{requests} requests in {seconds:g} s, {rate.words}",
    )
