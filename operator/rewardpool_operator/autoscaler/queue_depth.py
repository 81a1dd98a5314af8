"""Policy QueueDepth: as many replicas as hold the requests at the target, from what the routers hold.

    wanted = ceil((in flight + waiting) / targetPerReplica), within [minReplicas, maxReplicas]

The total over a per-replica target, not an average over the pods that answered: replicas that are still starting
neither hide demand nor multiply it. Up at once. Down to the largest number wanted within the stabilization window, as
the Kubernetes HPA does it. To zero (minReplicas 0) only after `idleSeconds` without a request, and one replica is kept
until then. Missing figures hold the size.

The state changes only when the recommendation does, so a pool under steady or no load needs no write.
"""

import math
from datetime import datetime, timedelta

from rewardpool_api.autoscaling import AutoscalingSpec, QueueDepthPolicy
from rewardpool_api.status import DesiredAt, LoadStatus, ScalingStatus
from rewardpool_operator.times import from_rfc3339, rfc3339

MAX_WINDOW = 64
"""Entries the status holds."""


def recommend(
    *,
    scaling: AutoscalingSpec,
    policy: QueueDepthPolicy,
    load: LoadStatus | None,
    previous: ScalingStatus | None,
    replicas: int,
    now: datetime,
) -> ScalingStatus:
    """Decide the wanted number of replicas.

    Args:
        scaling: bounds and windows.
        policy: the target.
        load: requests at the routers now, None when any router's figures are missing.
        previous: the last decision, None for a new pool.
        replicas: workers there are now, leaving ones not counted; the size to hold without a previous decision.
        now: timezone-aware.

    Returns:
        The decision with the state for the next one. `history` is passed on as it was: `decide` adds to it.
    """
    previous = previous or ScalingStatus(desired=replicas, reason="")
    held = _clamp(previous.desired, scaling)
    if load is None:
        return previous.model_copy(
            update={"desired": held, "reason": "figures of a router are missing: the size is held"}
        )
    requests = load.in_flight + load.waiting
    idle_since = None if requests else previous.idle_since or rfc3339(now)
    wanted = _clamp(math.ceil(requests / policy.target_per_replica), scaling)
    reason = f"{requests} requests over {policy.target_per_replica} per replica"
    if idle_since is not None and scaling.min_replicas == 0:
        idle_seconds = (now - from_rfc3339(idle_since)).total_seconds()
        if idle_seconds >= scaling.idle_seconds:
            return previous.model_copy(
                update={
                    "desired": 0,
                    "reason": f"no request for {scaling.idle_seconds} s",
                    "idle_since": idle_since,
                    "window": [],
                }
            )
        wanted, reason = min(1, held), f"no request since {idle_since}; to zero after {scaling.idle_seconds} s"
    window = _window(previous.window, wanted, now, timedelta(seconds=scaling.scale_down.stabilization_seconds))
    desired = max(entry.replicas for entry in window)
    if desired > wanted:
        reason += f"; {desired} were wanted within {scaling.scale_down.stabilization_seconds} s"
    return previous.model_copy(
        update={"desired": desired, "reason": reason, "idle_since": idle_since, "window": window}
    )


def _clamp(replicas: int, scaling: AutoscalingSpec) -> int:
    return max(scaling.min_replicas, min(scaling.max_replicas, replicas))


def _window(previous: list[DesiredAt], wanted: int, now: datetime, length: timedelta) -> list[DesiredAt]:
    """The larger recommendations that are still fresh, then the present one.

    Sizes fall strictly from first to last: a recommendation not larger than a later one can never be the maximum.
    """
    if previous and previous[-1].replicas == wanted:
        ended, present = previous[:-1], previous[-1]
    else:
        # What was wanted until now is dated by its end.
        ended = [*previous[:-1], *(DesiredAt(time=rfc3339(now), replicas=entry.replicas) for entry in previous[-1:])]
        present = DesiredAt(time=rfc3339(now), replicas=wanted)
    fresh = [entry for entry in ended if entry.replicas > wanted and from_rfc3339(entry.time) > now - length]
    falling: list[DesiredAt] = []
    for entry in reversed(fresh):
        if not falling or entry.replicas > falling[-1].replicas:
            falling.append(entry)
    # Beyond what the status holds, the smaller ones between the largest and the present one go.
    return [*list(reversed(falling))[: MAX_WINDOW - 1], present]
