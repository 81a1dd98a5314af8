"""Knative Serving 1.23's pod autoscaler, KPA.

Read in pkg/autoscaler/{scaling/autoscaler,aggregation/bucketing,metrics/collector}.go,
pkg/reconciler/autoscaling/kpa/scaler.go and config/core/configmaps/autoscaler.yaml.

    every second   a sample: requests at the pods and at the activator, together
    every 2 s      stable = ceil(mean of 60 s / target), panic = ceil(mean of 6 s / target),
                   both within [floor(ready / 2), 1000 x ready], `ready` at least 1
    panic          begins at panic / ready >= 2, ends 60 s after that was last so; meanwhile the larger of the two, and
                   never less than before
    a restart      with more than one pod ready begins in panic, at that size
    from zero      the activator's first sample is acted on at once
    to zero        wanted 0 for a fleet active for 60 s: it is marked inactive, and goes to zero once it was so for
                   30 s, or for 3 s if the activator was in the way of requests for 30 s already. It is while the room
                   at the pods, less the load, is under 211 requests (`target-burst-capacity`): in small fleets always

The target per replica is given as `autoscaling.knative.dev/target`: a soft limit, with `containerConcurrency` 0.
Knative aims at 70 % of it (`container-concurrency-target-percentage`), so it holds 1 / 0.7 times as many replicas as
the others for the same target. `utilization=1.0` takes that away: it compares the formulas rather than the products.

The policy is called every second, as Knative samples; it decides at every other call. Averaging over six samples of a
second it needs 6 s for a step of eight times; over three samples of 2 s it would be 4 s.

Left out: a second's mean concurrency (the simulation gives the number at that second), sampling of a part of the pods,
`scale-down-delay` (0 s by default), `activation-scale`, giving up on a start after the progress deadline.
"""

import math
from typing import Final

from autoscaler.peers.settings import PeerSettings
from autoscaler.peers.windows import SLACK_SECONDS, Seconds
from rewardpool_simulator.policy import View

TICK_SECONDS: Final = 2
STABLE_SECONDS: Final = 60
PANIC_SECONDS: Final = 6
UTILIZATION: Final = 0.7
PANIC_THRESHOLD: Final = 2.0
MAX_UP: Final = 1000
MAX_DOWN: Final = 2
BURST_CAPACITY: Final = 211
GRACE_SECONDS: Final = 30.0
REQUEUE_SECONDS: Final = 3.0


class Scaler:
    """How many pods two means of concurrency call for; it remembers panic alone."""

    def __init__(self, *, target: float, ready: int, now: float) -> None:
        self._target = target
        self._panic_since = now if ready > 1 else None
        self._floor = ready

    def scale(self, *, now: float, ready: int, stable: float, panic: float) -> int:
        """Wanted pods, not bounded by the user's minimum and maximum.

        Args:
            now: seconds.
            ready: pods that take requests.
            stable: mean of all requests there are over 60 s.
            panic: the same over 6 s.
        """
        ready = max(1, ready)
        lowest, highest = ready // MAX_DOWN, MAX_UP * ready
        in_stable, in_panic = math.ceil(stable / self._target), math.ceil(panic / self._target)
        wanted = min(max(in_stable, lowest), highest)
        if in_panic / ready >= PANIC_THRESHOLD:
            self._panic_since = now
        elif self._panic_since is not None and now - self._panic_since > STABLE_SECONDS + SLACK_SECONDS:
            self._panic_since, self._floor = None, 0
        if self._panic_since is not None:
            self._floor = max(self._floor, wanted, min(max(in_panic, lowest), highest))
            return self._floor
        return wanted


class KnativeKpa:
    """One Revision."""

    name = "Knative KPA"
    period_seconds = 1.0

    def __init__(self, settings: PeerSettings, *, utilization: float = UTILIZATION) -> None:
        self._settings = settings
        self._utilization = utilization
        self._stable = Seconds(seconds=STABLE_SECONDS)
        self._panic = Seconds(seconds=PANIC_SECONDS)
        self._second = -1
        self._scaler: Scaler | None = None
        self._active_since: float | None = None
        self._inactive_since: float | None = None
        self._proxied_since: float | None = None

    def decide(self, view: View) -> int:
        """Wanted replicas; at every other call just the present ones, unless a request came to a fleet of none."""
        self._second += 1
        if self._scaler is None:
            target = self._utilization * self._settings.target_per_replica
            self._scaler = Scaler(target=target, ready=view.ready, now=view.now)
        if view.ready or view.requests:
            self._stable.record(self._second, view.requests)
            self._panic.record(self._second, view.requests)
        is_poked = view.desired == 0 and view.requests > 0
        if self._stable.is_empty(self._second) or (self._second % TICK_SECONDS and not is_poked):
            return self._settings.clamp(view.desired)
        return self._tick(view, self._scaler)

    def _tick(self, view: View, scaler: Scaler) -> int:
        stable, panic = self._stable.mean(self._second), self._panic.mean(self._second)
        wanted = self._settings.clamp(scaler.scale(now=view.now, ready=view.ready, stable=stable, panic=panic))
        spare = view.ready * self._settings.target_per_replica - BURST_CAPACITY - panic
        if spare >= 0:
            self._proxied_since = None
        elif self._proxied_since is None:
            self._proxied_since = view.now
        if self._active_since is None and view.ready:
            self._active_since = view.now
        return self._down_to_zero(view) if wanted == 0 else self._up(wanted, view)

    def _up(self, wanted: int, view: View) -> int:
        if self._inactive_since is not None:
            self._inactive_since, self._active_since = None, view.now
        return wanted

    def _down_to_zero(self, view: View) -> int:
        if view.desired == 0 or self._active_since is None:
            # At zero already, or on the way up: a start is seen through.
            return view.desired
        if self._inactive_since is None:
            if view.now - self._active_since < STABLE_SECONDS - SLACK_SECONDS:
                return 1
            self._inactive_since = view.now
        inactive = view.now - self._inactive_since
        proxied = 0.0 if self._proxied_since is None else view.now - self._proxied_since
        if inactive >= GRACE_SECONDS or (inactive >= REQUEUE_SECONDS and proxied >= GRACE_SECONDS):
            self._inactive_since = self._active_since = None
            return 0
        return view.desired
