"""sglang-router 0.3, which holds a request that has no worker, and retries every `retry_max_backoff_ms`.

While a request waits, the counter of retries moves:

- no retry within `RETRY_WINDOW_SECONDS`: none waits, and every connection that is not at a worker was leaked
  (`smg_http_connections_active` never comes down for a caller who hung up);
- otherwise: open connections, less those at workers, less those known to be leaked; but no more than the retries
  within the window, since every waiting request makes at least one.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from rewardpool_operator.routers.metrics import total
from rewardpool_operator.routers.program import RouterProgram

# Longer than sglang-router's longest pause between two retries: half a second and a jitter of 20 %.
RETRY_WINDOW_SECONDS = 3.0


class _Reading(NamedTuple):
    at: float
    retries: int
    elsewhere: int


@dataclass(frozen=True, kw_only=True)
class RouterMetrics:
    """The metrics of sglang-router at one moment."""

    connections: int
    """Requests it has not answered, and those of callers who hung up."""
    in_flight: int
    retries: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the Prometheus text format; None, and a log line, when one is not a count."""
        connections = total(text, "smg_http_connections_active")
        in_flight = total(text, "smg_worker_requests_active")
        retries = total(text, "smg_worker_retries_total")
        if connections is None or in_flight is None or retries is None:
            return None
        return cls(connections=connections, in_flight=in_flight, retries=retries)


class RetriedRequests:
    """The requests that wait at an sglang-router; see `Waiting`."""

    def __init__(self) -> None:
        self._readings: deque[_Reading] = deque()
        self._leaked = 0

    def read(self, text: str, *, now: float) -> int | None:
        metrics = RouterMetrics.parse(text)
        return None if metrics is None else self.update(metrics, now=now)

    def update(self, metrics: RouterMetrics, *, now: float) -> int | None:
        reading = _Reading(now, metrics.retries, max(0, metrics.connections - metrics.in_flight))
        if self._readings and reading.retries < self._readings[-1].retries:
            # The router was restarted.
            self._readings.clear()
        if not self._readings and reading.retries == 0:
            # No retry since the router started is a window of its own.
            self._readings.append(_Reading(-math.inf, 0, 0))
            self._leaked = 0
        self._readings.append(reading)
        while len(self._readings) > 1 and self._readings[1].at <= now - RETRY_WINDOW_SECONDS:
            self._readings.popleft()
        first = self._readings[0]
        if reading.elsewhere == 0:
            return 0
        if first.at > now - RETRY_WINDOW_SECONDS:
            return None
        if reading.retries == first.retries:
            # The least of the window: who came just now may be about to make a first retry.
            self._leaked = min(earlier.elsewhere for earlier in self._readings)
            return 0
        return max(1, min(reading.elsewhere - self._leaked, reading.retries - first.retries))


SGLANG_ROUTER: Final = RouterProgram(
    package="sglang_router",
    requirement="sglang-router==0.3.2",
    waiting=RetriedRequests,
    # What `/v1/models` says; without it "unknown". It routes by no name.
    worker=lambda served_name: {"model_id": served_name},
    # It joins the host with the port as it is, and its metrics' address it does not.
    ipv6_host="[{}]",
)
