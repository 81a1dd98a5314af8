"""KubeAI 0.21's autoscaler of models.

Read in internal/modelautoscaler/autoscaler.go, internal/modelclient/scale.go, internal/movingaverage/simple.go and
internal/config/system.go.

    every 10 s     wanted = ceil(mean of the last 60 samples of active requests / targetRequests), within the bounds
    up             at once
    down           once 3 ticks before found less as well (`scaleDownDelaySeconds` 30), so at the fourth
    from zero      to 1 by the proxy, as soon as it holds a request

The 60 samples are zeros at first. A request counts while the proxy holds it, at a replica or not. The count of ticks
with less starts anew only when a tick wants the present size or more: a fleet that shrinks by one at each tick waits
only before its first step. That is as shipped.

`targetRequests` is the target per replica; its default of 100 is not used.

The policy is called every second for the proxy's sake; the loop runs at each tenth call.

Left out: several proxies of which one does not answer (the tick is skipped for all models), the averages that are saved
for a restart.
"""

import math
from collections import deque
from typing import Final

from autoscaler.peers.settings import PeerSettings
from rewardpool_simulator.policy import View

INTERVAL_SECONDS: Final = 10
WINDOW_SECONDS: Final = 600
SCALE_DOWN_DELAY_SECONDS: Final = 30
_SAMPLES: Final = math.ceil(WINDOW_SECONDS / INTERVAL_SECONDS)
_TICKS_BEFORE_DOWN: Final = math.ceil(SCALE_DOWN_DELAY_SECONDS / INTERVAL_SECONDS)


class KubeAi:
    """One Model's replicas."""

    name = "KubeAI"
    period_seconds = 1.0

    def __init__(self, settings: PeerSettings) -> None:
        self._settings = settings
        self._samples = deque([0] * _SAMPLES, maxlen=_SAMPLES)
        self._ticks_with_less = 0
        self._calls = 0

    def decide(self, view: View) -> int:
        """Wanted replicas, by the proxy or by the loop."""
        is_tick = self._calls % INTERVAL_SECONDS == 0
        self._calls += 1
        current = 1 if view.desired == 0 and view.requests else view.desired
        return self._loop(view.requests, current) if is_tick else current

    def _loop(self, requests: int, current: int) -> int:
        self._samples.append(requests)
        mean = sum(self._samples) / _SAMPLES
        wanted = self._settings.clamp(math.ceil(mean / self._settings.target_per_replica))
        if wanted >= current:
            self._ticks_with_less = 0
        elif self._ticks_with_less < _TICKS_BEFORE_DOWN:
            self._ticks_with_less += 1
            return current
        return wanted
