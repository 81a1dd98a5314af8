"""AIBrix 0.7's own autoscalers, APA and KPA, as shipped.

Read in pkg/controller/podautoscaler: podautoscaler_controller.go, algorithm/{apa,kpa}.go, metrics/client.go,
types/metrics.go and context/context.go, at 0.7.0 and 156 commits.

    every 10 s   a sample: the mean of the metric over the pods that answered; none answered: nothing is done
    stable       mean of the samples of 180 s; panic: of 60 s
    APA          r = stable / target
                 r > 1.1: min(ceil(n x r), ceil(2n));  r < 0.9: max(ceil(n x r), floor(n / 2));  else n
    KPA          ceil(stable / target), n while that is within 10 % of the target; within [floor(n / 2), max(1, 2n)];
                 the larger of it and the same with `panic`, while stable <= 0 or panic / stable > 2
    then         less than n: the smallest recommendation of 300 s; within the bounds

Behaviour that one would not expect, modelled because it is what users get:

- KPA divides a mean *per pod* by the target *per pod* and takes the quotient for a number of pods. Knative divides the
  total. Under load the mean falls as pods come, and with it the size.
- APA multiplies by the pods that are *wanted*, while the mean is over those that answer: it grows on while pods start.
- The "cooldown" of 300 s takes the smallest recommendation on the way down, where an HPA takes the largest. A fleet
  that had one replica within 300 s falls back to one in one step.
- The controller watches its own objects and writes the size into their status, so each change starts the next reconcile
  at once, with the same mean and the new size: steps of at most two times run in one go until the recommendation stands
  still. Measured, eight times the load had eight times the replicas 1.1 s later. `reconciles_on_status=False` is the
  algorithm alone, one step a tick.
- Panic keeps no size (`SetMaxPanicPods` does nothing): the fleet shrinks in panic as well.

The metric is requests at a pod, running and waiting. AIBrix's gateway hands every request to some pod, so what a
simulated router holds back counts as spread over the ready replicas. With `minReplicas` 0 both would go to zero and
stay there, since no pod is left to measure; their users would not do that, so one replica is the least here.

Left out: several metrics (the largest counts), schedules, annotations, PodAutoscalers over HPAs.
"""

import math
from abc import ABC, abstractmethod
from typing import Final

from autoscaler.peers.settings import PeerSettings
from autoscaler.peers.windows import Extreme, Samples
from rewardpool_simulator.policy import View

RESYNC_SECONDS: Final = 10.0
STABLE_SECONDS: Final = 180.0
PANIC_SECONDS: Final = 60.0
COOLDOWN_SECONDS: Final = 300.0
RATE: Final = 2
"""At most so many times as many, or as few, at a step."""
TOLERANCE: Final = 0.1
PANIC_THRESHOLD: Final = 2.0


class _PodAutoscaler(ABC):
    """What the controller does for either algorithm."""

    period_seconds = RESYNC_SECONDS

    def __init__(self, settings: PeerSettings, *, reconciles_on_status: bool = True) -> None:
        self._settings = settings.at_least_one()
        self._stable = Samples(seconds=STABLE_SECONDS)
        self._panic = Samples(seconds=PANIC_SECONDS)
        self._smallest = Extreme(min, seconds=COOLDOWN_SECONDS)
        # A size moves by at least one replica at each step, at most once down to the smallest and up again.
        self._steps = 2 * settings.max_replicas if reconciles_on_status else 1

    def decide(self, view: View) -> int:
        """Wanted replicas at one resync, with the reconciles that its own changes start."""
        current = view.desired
        if current != self._settings.clamp(current):
            return self._settings.clamp(current)
        if view.ready == 0:
            return current
        mean = view.requests / view.ready
        self._stable.record(view.now, mean)
        self._panic.record(view.now, mean)
        for _ in range(self._steps):
            previous, current = current, self._reconcile(view.now, current)
            if current == previous:
                break
        return current

    def _reconcile(self, now: float, current: int) -> int:
        recommended = self._settings.clamp(self._recommended(current))
        smallest = self._smallest.record(now, recommended)
        return smallest if recommended < current else recommended

    @abstractmethod
    def _recommended(self, current: int) -> int:
        """What the strategy asks for, from the windows and the size now."""


class AibrixApa(_PodAutoscaler):
    """`scalingStrategy: APA`."""

    name = "AIBrix APA"

    def _recommended(self, current: int) -> int:
        ratio = self._stable.mean / self._settings.target_per_replica
        if ratio > 1 + TOLERANCE:
            return min(math.ceil(current * ratio), RATE * current)
        if ratio < 1 - TOLERANCE:
            return max(math.ceil(current * ratio), current // RATE)
        return current


class AibrixKpa(_PodAutoscaler):
    """`scalingStrategy: KPA`."""

    name = "AIBrix KPA"

    def _recommended(self, current: int) -> int:
        stable, panic = self._stable.mean, self._panic.mean
        wanted = self._pods(stable, current)
        if stable <= 0 or panic / stable > PANIC_THRESHOLD:
            return max(wanted, self._pods(panic, current))
        return wanted

    def _pods(self, mean: float, current: int) -> int:
        ratio = mean / self._settings.target_per_replica
        pods = current if 1 - TOLERANCE <= ratio <= 1 + TOLERANCE else math.ceil(ratio)
        return min(max(pods, current // RATE), max(1, RATE * current))
