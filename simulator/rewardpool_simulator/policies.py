"""The policies that a trace can be simulated with, by the names that commands accept."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from rewardpool_api.autoscaling import AutoscalingSpec, PolicySpec
from rewardpool_simulator.policy import View
from rewardpool_simulator.pool_policy import PoolPolicy
from rewardpool_simulator.run import PolicyFactory
from rewardpool_simulator.trace import PolicyFigures, Trace

NAMES: Final = ("demand", "drain-time", "queue-depth")
MANIFEST: Final = "manifest"
ALWAYS_ON: Final = "always-on"


class AlwaysOn:
    """A fleet of fixed size."""

    period_seconds = 60.0

    def __init__(self, replicas: int) -> None:
        self.name = f"{ALWAYS_ON}-{replicas}"
        self._replicas = replicas

    def decide(self, view: View) -> int:
        return self._replicas


def always_on(replicas: int) -> PolicyFactory:
    """Return a policy of fixed size."""
    return lambda observation: AlwaysOn(replicas)


def manifest_policy(scaling: AutoscalingSpec) -> PolicyFactory:
    """Return a pool's own autoscaling as a policy; its type must not be External."""
    return partial(PoolPolicy, MANIFEST, scaling)


def factories(figures: PolicyFigures, *, min_replicas: int = 0, max_replicas: int) -> Mapping[str, PolicyFactory]:
    """Return all policies by name, with the same bounds and figures."""
    specs = {
        "demand": {"type": "Demand", "demand": {"drainSeconds": figures.drain_seconds}},
        "drain-time": {"type": "DrainTime", "drainTime": {"targetSeconds": figures.drain_seconds}},
        "queue-depth": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": figures.target_per_replica}},
    }
    scalings = {
        name: AutoscalingSpec(
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            policy=PolicySpec.model_validate(policy),
            cooldown_seconds=figures.cooldown_seconds,
        )
        for name, policy in specs.items()
    }
    return MappingProxyType({name: partial(PoolPolicy, name, scaling) for name, scaling in scalings.items()})


def factories_for(trace: Trace) -> Mapping[str, PolicyFactory]:
    """Return all policies by name, with the trace's own figures."""
    return factories(trace.figures, max_replicas=trace.fleet.max_replicas)
