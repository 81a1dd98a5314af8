"""Small builders for the autoscaler's tests: a test names only what it is about."""

from datetime import datetime, timedelta
from typing import Any

from support.decide_builders import NOW

from rewardpool_api.autoscaling import AutoscalingSpec
from rewardpool_api.demand import Demand
from rewardpool_api.status import LoadStatus, ScalingStatus
from rewardpool_control.autoscaler.recommend import recommend
from rewardpool_control.autoscaler.signals import Announcement, Signals

QUEUE_DEPTH = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}}
DRAIN_TIME = {"type": "DrainTime", "drainTime": {"targetSeconds": 10}}
DEMAND: dict[str, Any] = {"type": "Demand", "demand": {}}


def a_scaling(*policies: dict[str, Any], **fields: Any) -> AutoscalingSpec:
    """1 to 8 replicas, exactly by the policies (QueueDepth by default); `fields` in the manifest's camelCase."""
    defaults = {"minReplicas": 1, "maxReplicas": 8, "tolerancePercent": 0, "cooldownSeconds": 100}
    chosen = {"policies": list(policies)} if policies else {"policy": QUEUE_DEPTH}
    return AutoscalingSpec.model_validate({**defaults, **chosen, **fields})


def a_job(
    phase: str = "Rollout", *, job: str = "grpo", renewed: datetime = NOW, seconds: float = 15, **fields: Any
) -> Announcement:
    """A job's word; `fields` are those of `Demand`."""
    demand = Demand.model_validate({"job": job, "phase": phase, **fields})
    return Announcement(name=f"demand-rm-{job}", renewed=renewed, seconds=seconds, demand=demand)


def signals(requests: int | None = 0, *, at: float = 0.0, **fields: Any) -> Signals:
    """What is seen `at` seconds after NOW; None requests are missing figures."""
    load = None if requests is None else LoadStatus(in_flight=requests)
    return Signals(**{"now": NOW + timedelta(seconds=at), "load": load, "replicas": 1, "serving": 1, **fields})


def run(*seen: Signals, scaling: AutoscalingSpec | None = None) -> list[ScalingStatus]:
    """The decisions on one look after the other."""
    previous, decisions = None, []
    for one in seen:
        previous = recommend(scaling=scaling or a_scaling(), signals=one, previous=previous).scaling
        decisions.append(previous)
    return decisions


def sizes(
    *requests: int | None, scaling: AutoscalingSpec | None = None, every: float = 1.0, **fields: Any
) -> list[int]:
    """The sizes for one number of requests after the other."""
    seen = [signals(count, at=number * every, **fields) for number, count in enumerate(requests)]
    return [decision.desired for decision in run(*seen, scaling=scaling)]
