"""The worker list of one sglang-router replica, and what the router holds: all that RewardPool asks of a router.

sglang-router 0.3.2 keeps its list in memory, changes it in the background (`202 Accepted`), and has no figure for the
requests that wait. `RouterAdmin` is the one place that knows this: another router is another class with the same five
methods.

The waiting requests, which are what brings a pool back from zero, are worked out from three metrics. A request that has
no worker is retried every `retry_max_backoff_ms`, so as long as somebody waits, the counter of retries moves:

- no retry within `WINDOW_SECONDS`: nobody waits, and every connection that is not at a worker was leaked
  (`smg_http_connections_active` never comes down for a caller who hung up);
- otherwise: open connections, less those at workers, less those known to be leaked; but no more than the retries
  within the window, since every waiting request makes at least one.
"""

import logging
import math
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from rewardpool_operator.snapshot import Failure, RegisteredWorker, Router

log = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=5, sock_connect=2)
"""Seconds; a router answers these calls from memory, within milliseconds."""

WINDOW_SECONDS = 3.0
"""Longer than the router's longest pause between two retries: 2 s and a jitter of 20 %."""


class RouterError(RuntimeError):
    """A router refused a call or answered what it should not; the text says which call and what."""


class RouterUnreachableError(RouterError):
    """Nothing answers at the router's address, or not in time."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a router's metrics say at one moment."""

    connections: int
    """Requests it has not answered, and those of callers who hung up."""
    in_flight: int
    """Requests at workers."""
    retries: int
    """Retries since it started."""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the Prometheus text format; None, and a log line, when a figure is no count."""
        totals = dict.fromkeys(
            ("smg_http_connections_active", "smg_worker_requests_active", "smg_worker_retries_total"), 0.0
        )
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in totals:
                    totals[sample.name] += sample.value
        for name, total in totals.items():
            if not math.isfinite(total) or total < 0:
                log.warning("the router's metric %s is %s, which is no number of requests: left out", name, total)
                return None
        connections, in_flight, retries = (int(total) for total in totals.values())
        return cls(connections=connections, in_flight=in_flight, retries=retries)


class _Reading(NamedTuple):
    at: float
    retries: int
    elsewhere: int
    """Connections that are not at a worker."""


class WaitingRequests:
    """Works out how many requests wait, from the figures of one pass after the other."""

    def __init__(self) -> None:
        self._readings: deque[_Reading] = deque()
        self._leaked = 0

    def update(self, figures: Figures, *, now: float) -> int | None:
        """Take in the figures of `now` (monotonic seconds).

        Returns:
            Requests that are accepted and at no worker; None until a window has been seen.
        """
        reading = _Reading(now, figures.retries, max(0, figures.connections - figures.in_flight))
        if self._readings and reading.retries < self._readings[-1].retries:
            # The router was restarted.
            self._readings.clear()
        if not self._readings and reading.retries == 0:
            # No retry since the router started is a window of its own.
            self._readings.append(_Reading(-math.inf, 0, 0))
            self._leaked = 0
        self._readings.append(reading)
        while len(self._readings) > 1 and self._readings[1].at <= now - WINDOW_SECONDS:
            self._readings.popleft()
        first = self._readings[0]
        if reading.elsewhere == 0:
            return 0
        if first.at > now - WINDOW_SECONDS:
            return None
        if reading.retries == first.retries:
            # The least of the window: who came just now may be about to make a first retry.
            self._leaked = min(earlier.elsewhere for earlier in self._readings)
            return 0
        return max(1, min(reading.elsewhere - self._leaked, reading.retries - first.retries))


class RouterAdmin:
    """One router replica, by its addresses. Keeps what the metrics said before, so keep it from pass to pass."""

    def __init__(self, session: aiohttp.ClientSession, *, url: str, metrics_url: str, admin_key: str | None) -> None:
        """Remember the addresses; nothing is called yet.

        Args:
            session: carries the calls, and belongs to the caller.
            url: base URL of the router.
            metrics_url: base URL of its Prometheus endpoint.
            admin_key: key of the worker list; None for a router that was started without one.
        """
        self._session = session
        self._url = url.rstrip("/")
        self._metrics_url = f"{metrics_url.rstrip('/')}/metrics"
        self._headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        self._waiting = WaitingRequests()
        self._queued: dict[str, str] = {}

    async def observe(self, name: str) -> Router:
        """Everything a snapshot says of this replica; a replica that does not answer is an observation, no error."""
        try:
            registered = await self.workers()
        except RouterUnreachableError as error:
            log.debug("router %s: %s", name, error)
            return Router(name=name)
        except RouterError as error:
            log.warning("router %s: %s", name, error)
            return Router(name=name, failure=Failure(reason="RouterRefuses", message=str(error)))
        try:
            waiting = await self.waiting()
        except RouterError as error:
            log.warning("router %s: the number of waiting requests is unknown: %s", name, error)
            waiting = None
        return Router(name=name, answering=True, registered=registered, waiting=waiting)

    async def workers(self) -> tuple[RegisteredWorker, ...]:
        """The worker list.

        Raises:
            RouterError: it cannot be read.
        """
        answer = await self._call("GET", "/workers", expect=200)
        try:
            return tuple(
                RegisteredWorker(id=entry["id"], url=entry["url"], in_flight=_count(entry.get("load"), entry["url"]))
                for entry in answer["workers"]
            )
        except (KeyError, TypeError) as error:
            raise RouterError(f"GET {self._url}/workers: no list of workers: {type(error).__name__}: {error}") from None

    async def waiting(self) -> int | None:
        """Requests that are accepted and at no worker; None while that is not known.

        Raises:
            RouterError: the metrics cannot be read.
        """
        try:
            async with self._session.get(self._metrics_url, timeout=TIMEOUT) as response:
                response.raise_for_status()
                figures = Figures.parse(await response.text())
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise RouterUnreachableError(f"GET {self._metrics_url}: {_words(error)}") from None
        return None if figures is None else self._waiting.update(figures, now=monotonic())

    async def add(self, worker_url: str) -> None:
        """Put a worker that answers on the list, in the background of the router.

        The router tries an address until it answers and cannot be told to stop; ten of those block its list. So a
        worker is added only once it answers, and not again while the router is still at it.

        Raises:
            RouterError: the router does not take it.
        """
        if await self._is_still_adding(worker_url):
            return
        answer = await self._call("POST", "/workers", expect=202, json={"url": worker_url})
        self._queued[worker_url] = str(answer.get("worker_id"))

    async def remove(self, worker_id: str) -> None:
        """Take a worker off the list: no new request goes to it, those in flight finish. One that is off stays off.

        Raises:
            RouterError: the router refuses.
        """
        await self._call("DELETE", f"/workers/{worker_id}", expect=202, or_absent=True)

    async def _is_still_adding(self, worker_url: str) -> bool:
        worker_id = self._queued.pop(worker_url, None)
        if worker_id is None:
            return False
        answer = await self._call("GET", f"/workers/{worker_id}", expect=200, or_absent=True)
        job = answer.get("job_status") or {}
        if job.get("status") not in ("pending", "processing"):
            return False
        self._queued[worker_url] = worker_id
        return True

    async def _call(
        self, method: str, path: str, *, expect: int, or_absent: bool = False, json: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Call the router and return the object it answers; empty for a 404 where `or_absent` allows one."""
        url = self._url + path
        try:
            async with self._session.request(
                method, url, json=json, headers=self._headers, timeout=TIMEOUT
            ) as response:
                if or_absent and response.status == 404:
                    return {}
                if response.status != expect:
                    said = (await response.text())[:300]
                    raise RouterError(f"{method} {url}: status {response.status}: {said}")
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise RouterUnreachableError(f"{method} {url}: {_words(error)}") from None
        except ValueError as error:
            raise RouterError(f"{method} {url}: the answer is not JSON: {error}") from None
        if not isinstance(answer, dict):
            raise RouterError(f"{method} {url}: the answer is not a JSON object")
        return answer


def _count(value: object, worker_url: str) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    log.warning(
        "the router says that %r requests are at %s, which is no number of requests: left out", value, worker_url
    )
    return None


def _words(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
