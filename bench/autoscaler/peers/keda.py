"""KEDA 2.20: an HPA between one and the maximum, and KEDA itself between zero and one.

Read in pkg/scaling/executor/scale_scaledobjects.go, apis/keda/v1alpha1/{withtriggers,scaledobject}_types.go and
controllers/keda/hpa.go.

    every 30 s   a trigger is active if its value is above its activation threshold, 0
                 active at zero: to max(1, minReplicaCount)
                 inactive for 300 s (`cooldownPeriod`) with minReplicaCount 0: to zero, from whatever size
    every 15 s   the HPA that KEDA makes: External metric, `averageValue`, no `behavior` (see hpa.py), at least 1

The HPA asks KEDA's metrics server at each of its syncs and that asks the trigger, so a poll's 30 s delay only the step
from zero. Cooling down counts from the last poll that found the trigger active; with none so far, a fleet without load
goes to zero at the first poll.

Left out: triggers that fail (skipped, so they can look inactive), `fallback`, `idleReplicaCount`, cached metrics.
"""

from typing import Final

from autoscaler.peers.hpa import SYNC_SECONDS, Hpa
from autoscaler.peers.settings import PeerSettings
from autoscaler.peers.windows import SLACK_SECONDS
from rewardpool_simulator.policy import View

POLLING_SECONDS: Final = 30.0
COOLDOWN_SECONDS: Final = 300.0
_SYNCS_PER_POLL: Final = int(POLLING_SECONDS / SYNC_SECONDS)


class Keda:
    """A ScaledObject with one trigger, the total of requests."""

    name = "KEDA"
    period_seconds = SYNC_SECONDS

    def __init__(self, settings: PeerSettings) -> None:
        self._settings = settings
        self._hpa = Hpa(settings)
        self._syncs = 0
        self._last_active: float | None = None

    def decide(self, view: View) -> int:
        """Wanted replicas at one sync of the HPA, every other one of which is a poll too."""
        is_poll = self._syncs % _SYNCS_PER_POLL == 0
        self._syncs += 1
        if is_poll and view.requests:
            self._last_active = view.now
        if view.desired == 0:
            # The HPA is disabled at zero.
            starts = is_poll and view.requests > 0
            return max(1, self._settings.min_replicas) if starts else self._settings.min_replicas
        if is_poll and not view.requests and self._settings.min_replicas == 0 and self._has_cooled_down(view.now):
            return 0
        return self._hpa.decide(view)

    def _has_cooled_down(self, now: float) -> bool:
        return self._last_active is None or now - self._last_active >= COOLDOWN_SECONDS - SLACK_SECONDS
