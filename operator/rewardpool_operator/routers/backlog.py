"""How many requests wait at a router: what brings a pool back from zero. No router says so; it is worked out.

sglang-router holds a request that has no worker, and retries every `retry_max_backoff_ms`. So as long as somebody
waits, the counter of retries moves:

- no retry within `RETRY_WINDOW_SECONDS`: nobody waits, and every connection that is not at a worker was leaked
  (`smg_http_connections_active` never comes down for a caller who hung up);
- otherwise: open connections, less those at workers, less those known to be leaked; but no more than the retries
  within the window, since every waiting request makes at least one.

smg refuses such a request at once, and the trainer asks again after a pause of `WAITING_PAUSE_SECONDS`. So the refusals
within a window, over how often one trainer's request is refused in it, are the requests that wait.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from rewardpool_api.contract import NO_WORKER_CODES, WAITING_PAUSE_SECONDS
from rewardpool_operator.routers.metrics import total

RETRY_WINDOW_SECONDS = 3.0
"""Longer than sglang-router's longest pause between two retries: 2 s and a jitter of 20 %."""
REFUSAL_WINDOW_SECONDS = 4.0
"""Longer than a trainer's longest pause, so that whoever waits was refused in it."""


class Waiting(Protocol):
    """Works out how many requests wait, from a router's metrics of one pass after the other."""

    def read(self, metrics: str, *, now: float) -> int | None:
        """Take in the metrics (Prometheus text format) of `now` (monotonic seconds).

        Returns:
            Requests that are at no worker; None until a window has been seen, or when a figure is no count.
        """


class _Reading(NamedTuple):
    at: float
    retries: int
    elsewhere: int
    """Connections that are not at a worker."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What sglang-router's metrics say at one moment."""

    connections: int
    """Requests it has not answered, and those of callers who hung up."""
    in_flight: int
    """Requests at workers."""
    retries: int
    """Retries since it started."""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the Prometheus text format; None, and a log line, when a figure is no count."""
        connections = total(text, "smg_http_connections_active")
        in_flight = total(text, "smg_worker_requests_active")
        retries = total(text, "smg_worker_retries_total")
        if connections is None or in_flight is None or retries is None:
            return None
        return cls(connections=connections, in_flight=in_flight, retries=retries)


class RetriedRequests:
    """The requests that wait at an sglang-router."""

    def __init__(self) -> None:
        self._readings: deque[_Reading] = deque()
        self._leaked = 0

    def read(self, metrics: str, *, now: float) -> int | None:
        """See `Waiting`."""
        figures = Figures.parse(metrics)
        return None if figures is None else self.update(figures, now=now)

    def update(self, figures: Figures, *, now: float) -> int | None:
        """Take in the figures of `now`."""
        reading = _Reading(now, figures.retries, max(0, figures.connections - figures.in_flight))
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


class RefusedRequests:
    """The requests that wait for a worker of an smg, in the trainers that it refused."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def read(self, metrics: str, *, now: float) -> int | None:
        """See `Waiting`."""
        refusals = total(
            metrics, "smg_http_responses_total", of=lambda sample: sample.labels.get("error_code") in NO_WORKER_CODES
        )
        return None if refusals is None else self.update(refusals, now=now)

    def update(self, refusals: int, *, now: float) -> int | None:
        """Take in the refusals since the router started, as of `now`."""
        if self._readings and refusals < self._readings[-1][1]:
            # The router was restarted.
            self._readings.clear()
        if not self._readings and refusals == 0:
            # None since the router started is a window of its own.
            self._readings.append((-math.inf, 0))
        self._readings.append((now, refusals))
        while len(self._readings) > 1 and self._readings[1][0] <= now - REFUSAL_WINDOW_SECONDS:
            self._readings.popleft()
        since, before = self._readings[0]
        if since > now - REFUSAL_WINDOW_SECONDS:
            return None
        seconds = now - since if math.isfinite(since) else REFUSAL_WINDOW_SECONDS
        refusals_of_one = seconds / (sum(WAITING_PAUSE_SECONDS) / 2)
        return math.ceil((refusals - before) / refusals_of_one)
