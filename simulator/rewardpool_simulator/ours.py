"""Our own autoscaler in the simulator: the function that the operator calls, fed as the operator feeds it.

Throughputs are measured by the operator's code from what a simulated router counts; announcements are made by the
trainer plugin's. The looks come as often as the operator has them while a pool is busy.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from rewardpool_api.autoscaling import AutoscalingSpec
from rewardpool_api.status import LoadStatus, ScalingStatus
from rewardpool_operator.autoscaler.recommend import recommend
from rewardpool_operator.autoscaler.signals import Announcement, Signals, Start, Throughput
from rewardpool_operator.throughput import BusyWorker, Count
from rewardpool_simulator.announcing import moment
from rewardpool_simulator.fleet import Replica
from rewardpool_simulator.policy import View

LOOK_SECONDS: Final = 1.0
"""Between two decisions."""
ROUTER: Final = "router"


class Senses(Protocol):
    """What our autoscaler sees beside the view."""

    @property
    def ready(self) -> Sequence[Replica]:
        """Replicas that take requests."""

    @property
    def is_short(self) -> bool:
        """Whether a replica fits nowhere."""

    @property
    def is_blind(self) -> bool:
        """Whether the routers' metrics are missing."""

    def announcements(self) -> tuple[Announcement, ...]:
        """The last announcement of every job."""


class Ours:
    """A pool with autoscaling, by its manifest."""

    period_seconds = LOOK_SECONDS

    def __init__(self, name: str, scaling: AutoscalingSpec, senses: Senses) -> None:
        self.name = name
        self.scaling_status: ScalingStatus | None = None
        """The last decision, with its reason."""
        self._scaling = scaling
        self._senses = senses
        self._busy: dict[str, BusyWorker] = {}

    def decide(self, view: View) -> int:
        """Wanted replicas."""
        throughputs = self._throughputs(view.now)
        signals = Signals(
            now=moment(view.now),
            load=None if self._senses.is_blind else LoadStatus(in_flight=view.in_flight, waiting=view.waiting),
            replicas=view.ready + view.starting,
            serving=view.ready,
            unschedulable="no node has a free GPU" if self._senses.is_short else None,
            answered=sum(busy.answered for busy in self._busy.values()),
            throughputs=throughputs,
            starts=self._starts(),
            announcements=self._senses.announcements(),
        )
        decided = recommend(scaling=self._scaling, signals=signals, previous=self.scaling_status)
        self.scaling_status = decided.scaling
        return decided.scaling.desired

    def _throughputs(self, now: float) -> tuple[Throughput, ...]:
        if self._senses.is_blind:
            return ()
        ready = self._senses.ready
        self._busy = {replica.name: self._busy.get(replica.name) or BusyWorker() for replica in ready}
        measured = ((replica.name, self._busy[replica.name].look(_count(replica), now=now)) for replica in ready)
        return tuple(
            Throughput(worker=name, rate=one[0], in_flight=one[1]) for name, one in measured if one is not None
        )

    def _starts(self) -> tuple[Start, ...]:
        return tuple(
            Start(worker=replica.name, seconds=replica.start_seconds)
            for replica in self._senses.ready
            if replica.start_seconds is not None
        )


def _count(replica: Replica) -> Count:
    return Count(answered={ROUTER: replica.answered}, in_flight=len(replica.requests))
