"""The policies that a trace can be simulated with, by the names that commands take."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from rewardpool_api.autoscaling import AutoscalingSpec, PolicySpec
from rewardpool_simulator.ours import Ours
from rewardpool_simulator.policy import View
from rewardpool_simulator.run import PolicyMaker
from rewardpool_simulator.trace import PolicyFigures, Trace

MANIFEST: Final = "manifest"
"""The policy that is a pool's own."""
ALWAYS_ON: Final = "always-on"


class AlwaysOn:
    """A fleet of fixed size."""

    period_seconds = 60.0

    def __init__(self, replicas: int) -> None:
        self.name = f"{ALWAYS_ON}-{replicas}"
        self._replicas = replicas

    def decide(self, view: View) -> int:
        """As many as ever."""
        return self._replicas


def always_on(replicas: int) -> PolicyMaker:
    """A fleet of fixed size."""
    return lambda senses: AlwaysOn(replicas)


def by_manifest(scaling: AutoscalingSpec) -> PolicyMaker:
    """A pool's own autoscaling, as its manifest has it; not External."""
    return partial(Ours, MANIFEST, scaling)


def makers(figures: PolicyFigures, *, min_replicas: int = 0, max_replicas: int) -> Mapping[str, PolicyMaker]:
    """All policies, set up alike."""
    ours = {
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
        for name, policy in ours.items()
    }
    return MappingProxyType({name: partial(Ours, name, scaling) for name, scaling in scalings.items()})


def makers_for(trace: Trace) -> Mapping[str, PolicyMaker]:
    """All policies, set up by the trace's own figures."""
    return makers(trace.figures, max_replicas=trace.fleet.max_replicas)


NAMES: Final = ("demand", "drain-time", "queue-depth")
"""Of all of these."""
