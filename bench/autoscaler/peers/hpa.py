"""Kubernetes' HorizontalPodAutoscaler, v2, as Kubernetes 1.34 ships it.

Read in pkg/controller/podautoscaler/{horizontal,replica_calculator}.go and config/v1alpha1/defaults.go.

    ratio   = total / (target x pods there are, ready or not)
    wanted  = ceil(total / target), or the pods there are while 0.9 <= ratio <= 1.1
    desired = the largest `wanted` of 300 s, up to max(2 x current, 4) at a time, within the bounds; every 15 s

The metric is the total of requests, as type External (or Object) with `averageValue`: of all metrics an HPA can have
the fairest for a queue, because it needs no replica to be ready. A Pods metric averages over the pods and multiplies by
them. `--horizontal-pod-autoscaler-initial-readiness-delay` (30 s) concerns the CPU metric only and has no place here.

An HPA without `spec.behavior`, the default, takes the path written above, so it goes 1 -> 4 -> 8. The rules that the
API reference calls defaults (+4 or +100 % per 15 s up, 100 % per 15 s down) fill in a `behavior` that is given in part;
they would go 1 -> 5 -> 8, in the same two steps.

Without the alpha gate HPAScaleToZero there is no way to and from zero, so one replica is the least.

Left out: an adapter's lag between the metric and the HPA, the 15 s between syncs growing by the work done in each, and
errors of the metric (they hold the size).
"""

import math
from typing import Final

from autoscaler.peers.settings import PeerSettings
from autoscaler.peers.windows import Extreme
from rewardpool_simulator.policy import View

SYNC_SECONDS: Final = 15.0
TOLERANCE: Final = 0.1
STABILIZATION_SECONDS: Final = 300.0
UP_FACTOR: Final = 2
UP_LEAST: Final = 4


class Hpa:
    """One HPA with one External metric and no `behavior`."""

    name = "HPA"
    period_seconds = SYNC_SECONDS

    def __init__(self, settings: PeerSettings) -> None:
        self._settings = settings.at_least_one()
        self._largest = Extreme(max, seconds=STABILIZATION_SECONDS)
        self._began = False

    def decide(self, view: View) -> int:
        """Wanted replicas at one sync."""
        current, settings = view.desired, self._settings
        if not self._began:
            # The size it finds counts as a recommendation: a controller that starts does not shrink for 300 s.
            self._largest.record(view.now, current)
            self._began = True
        if current != settings.clamp(current):
            return settings.clamp(current)
        wanted = self._largest.record(view.now, self._by_metric(view))
        return settings.clamp(min(wanted, max(UP_FACTOR * current, UP_LEAST)))

    def _by_metric(self, view: View) -> int:
        pods, target = view.ready + view.starting, self._settings.target_per_replica
        if pods and abs(view.requests / (target * pods) - 1) <= TOLERANCE:
            return pods
        return math.ceil(view.requests / target)
