"""The requests that a worker has: told to trainers, so that they leave alone what is in work.

A router hands on whole answers only, so to a trainer a request in work looks like one at a silent worker. Both routers
answer `GET /engine_metrics` with the metrics of all their workers, and these lines are among them:

    rewardpool_request_seconds{request="ID"} 3.2

A request has a line from its arrival to its answer. The value is how long the function has worked on it; 0 while it
waits for a place. Prometheus gets none of these lines: each would be a series of its own.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rewardpool_api.names import SERIES_REQUEST_SECONDS

SCRAPE_HEADER = "X-Prometheus-Scrape-Timeout-Seconds"  # sent by Prometheus, and by no router
_ID = re.compile(r"[A-Za-z0-9-]{1,128}")


class RequestsInWork:
    """Requests by their ids."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._requests: dict[RequestWork, None] = {}

    @contextmanager
    def request(self, request_id: str, *, calls: int) -> "Iterator[RequestWork]":
        """List a request within this block.

        Args:
            request_id: Its id; one that no trainer of ours made is not listed.

        Yields:
            The work on it.
        """
        request = RequestWork(request_id, calls, self._clock)
        if _ID.fullmatch(request_id):
            self._requests[request] = None
        try:
            yield request
        finally:
            self._requests.pop(request, None)

    def exposition(self) -> bytes:
        """Return a line for each request, in the text format of Prometheus."""
        now = self._clock()
        lines = [f'{SERIES_REQUEST_SECONDS}{{request="{one.id}"}} {one.seconds(now):.3f}\n' for one in self._requests]
        if not lines:
            return (
                b""  # Trap: a family without a line in one worker and with one in another is an error to the routers.
            )
        head = f"# HELP {SERIES_REQUEST_SECONDS} Seconds of work on it.\n# TYPE {SERIES_REQUEST_SECONDS} gauge\n"
        return (head + "".join(lines)).encode()


class RequestWork:
    """Work on one request."""

    __slots__ = ("_clock", "_missing", "_started_at", "id")

    def __init__(self, request_id: str, calls: int, clock: Callable[[], float]) -> None:
        self.id = request_id
        self._missing = calls
        self._clock = clock
        self._started_at = 0.0

    def started(self) -> None:
        self._missing -= 1
        self._started_at = self._clock()

    def seconds(self, now: float | None = None) -> float:
        """Return how long the function has worked on it, until now; 0 while a call waits for a place."""
        now = self._clock() if now is None else now
        return 0.0 if self._missing > 0 else now - self._started_at
