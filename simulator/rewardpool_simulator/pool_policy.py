"""RewardPool's own autoscaler in the simulator: the function that the operator calls, with the operator's inputs.

The operator's code measures throughputs from what a simulated router counts; the trainer plugin's code makes the
announcements. Decisions are as frequent as the operator's while a pool is busy.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rewardpool_api.autoscaling import AutoscalingSpec
from rewardpool_api.status import DemandStatus, LoadStatus, ScalingStatus
from rewardpool_control.autoscaler import budget
from rewardpool_control.autoscaler.recommend import recommend
from rewardpool_control.autoscaler.signals import Announcement, Claim, Signals, Start, Throughput
from rewardpool_control.throughput import BusyWorker, Count
from rewardpool_simulator.announcing import to_datetime
from rewardpool_simulator.fleet import SimulatedReplica
from rewardpool_simulator.policy import View

PERIOD_SECONDS: Final = 1.0
ROUTER: Final = "router"


class Observation(Protocol):
    """Observations of the operator in addition to a `View`."""

    @property
    def ready(self) -> Sequence[SimulatedReplica]: ...

    @property
    def lacks_capacity(self) -> bool:
        """True if a replica fits on no node."""

    @property
    def metrics_missing(self) -> bool:
        """True if the routers' metrics are missing."""

    def announcements(self) -> tuple[Announcement, ...]:
        """Return the last announcement of every job."""


class PoolPolicy:
    """A pool's autoscaling, by its spec."""

    period_seconds = PERIOD_SECONDS

    def __init__(
        self,
        name: str,
        scaling: AutoscalingSpec,
        observation: Observation,
        *,
        pool: str = "",
        others: Callable[[], tuple[Claim, ...]] = lambda: (),
    ) -> None:
        """`others` returns the claims of the other pools of the spec's budget, which know this one as `pool`."""
        self.name = name
        self._pool = pool
        self._others = others
        self._load: LoadStatus | None = None
        self._demands: list[DemandStatus] = []
        self.scaling_status: ScalingStatus | None = None
        self._scaling = scaling
        self._observation = observation
        self._busy: dict[str, BusyWorker] = {}

    def decide(self, view: View) -> int:
        seen = self._observation
        throughputs = self._throughputs(view.now)
        self._load = None if seen.metrics_missing else LoadStatus(in_flight=view.in_flight, waiting=view.waiting)
        signals = Signals(
            now=to_datetime(view.now),
            pool=self._pool,
            load=self._load,
            replicas=view.ready + view.starting,
            serving=view.ready,
            unschedulable="no node has a free GPU" if seen.lacks_capacity else None,
            answered=sum(busy.answered for busy in self._busy.values()),
            throughputs=throughputs,
            starts=self._starts(),
            announcements=seen.announcements(),
            there=view.ready + view.starting,
            ending=view.draining,
            others=self._others(),
        )
        decided = recommend(scaling=self._scaling, signals=signals, previous=self.scaling_status)
        self.scaling_status, self._demands = decided.scaling, decided.demands
        return decided.scaling.desired

    def claim(self, view: View) -> Claim | None:
        """Return the pool's claim on its budget, as the others see it; None without a budget."""
        scaling, before = self._scaling, self.scaling_status
        if scaling.budget is None:
            return None
        return budget.claim(
            pool=self._pool,
            scaling=scaling,
            budget=scaling.budget,
            wanted=budget.wanted_without(scaling, before),
            there=view.ready + view.starting,
            decided=before.desired if before else 0,
            ending=view.draining,
            stalled=budget.is_stalled(self._demands, load=self._load, serving=view.ready),
            history=before.history if before else (),
            now=to_datetime(view.now),
        )

    def _throughputs(self, now: float) -> tuple[Throughput, ...]:
        if self._observation.metrics_missing:
            return ()
        ready = self._observation.ready
        self._busy = {replica.name: self._busy.get(replica.name) or BusyWorker() for replica in ready}
        measured = ((replica.name, self._busy[replica.name].record(_count(replica), now=now)) for replica in ready)
        return tuple(
            Throughput(worker=name, rate=one[0], in_flight=one[1]) for name, one in measured if one is not None
        )

    def _starts(self) -> tuple[Start, ...]:
        return tuple(
            Start(worker=replica.name, seconds=replica.start_seconds)
            for replica in self._observation.ready
            if replica.start_seconds is not None
        )


def _count(replica: SimulatedReplica) -> Count:
    return Count(answered={ROUTER: replica.answered}, in_flight=len(replica.requests))
