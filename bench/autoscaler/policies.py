"""The policies that are compared: RewardPool's own and, set up alike, those of other projects (`peers/`)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from autoscaler.peers import PEERS, PeerSettings
from rewardpool_simulator import policies
from rewardpool_simulator.policy import Policy, View
from rewardpool_simulator.pool_policy import Observation
from rewardpool_simulator.run import PolicyFactory
from rewardpool_simulator.trace import PolicyFigures, Trace

NAMES: Final = (*policies.NAMES, *PEERS)


class MetricsOutage:
    """Another project's policy, which keeps the size while the routers' metrics are missing."""

    def __init__(self, policy: Policy, observation: Observation, *, name: str) -> None:
        self.name = name
        self._policy = policy
        self._observation = observation

    @property
    def period_seconds(self) -> float:
        """The policy's own period."""
        return self._policy.period_seconds

    def decide(self, view: View) -> int:
        """Return what the policy wants, or the present size without asking it."""
        return view.desired if self._observation.metrics_missing else self._policy.decide(view)


def factories(figures: PolicyFigures, *, min_replicas: int = 0, max_replicas: int) -> Mapping[str, PolicyFactory]:
    """Return all policies by name, RewardPool's own first."""
    settings = PeerSettings(
        target_per_replica=figures.target_per_replica, min_replicas=min_replicas, max_replicas=max_replicas
    )
    own = policies.factories(figures, min_replicas=min_replicas, max_replicas=max_replicas)
    return MappingProxyType({**own, **{name: _peer(name, make, settings) for name, make in PEERS.items()}})


def factories_for(trace: Trace) -> Mapping[str, PolicyFactory]:
    """Return all policies by name, set up by the trace's own figures."""
    return factories(trace.figures, max_replicas=trace.fleet.max_replicas)


def _peer(name: str, make: Callable[[PeerSettings], Policy], settings: PeerSettings) -> PolicyFactory:
    return lambda observation: MetricsOutage(make(settings), observation, name=name)
