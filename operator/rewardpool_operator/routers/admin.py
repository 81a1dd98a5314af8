"""The worker list of one router replica, and what the router holds: all that RewardPool asks of a router.

Routers keep their list in memory and change it in the background (`202 Accepted`). What differs between them, and how
many requests wait at them, is in their own modules: see `RouterProgram`.
"""

import logging
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json import loads
from time import monotonic
from typing import Any, Final

import aiohttp

from rewardpool_api.pool import RouterFlavor
from rewardpool_api.reasons import ConditionReason
from rewardpool_api.status import MAX_MESSAGE
from rewardpool_control.snapshot import Failure, RegisteredWorker, Router
from rewardpool_operator.left_out import readable
from rewardpool_operator.routers.metrics import answered, are_a_routers
from rewardpool_operator.routers.programs import PROGRAMS
from rewardpool_runtime.bounded import AnswerTooLargeError, read_excerpt, read_text
from rewardpool_runtime.untrusted import NONSENSE, count_of, printable

log = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=5, sock_connect=2)

MAX_LIST_BYTES: Final = 16 << 20  # ten thousand workers, the most that a pool may have, take half of it
MAX_URL: Final = 2048  # characters
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,255}")
MAX_METRICS_BYTES: Final = 64 << 20  # series of workers that left stay, so a router that saw many has many


class RouterError(RuntimeError):
    """A router refused a call or answered what it should not; the text says which call and what."""


class RouterUnreachableError(RouterError):
    """Nothing answers at the router's address, or not in time."""


class RouterDeniedError(RouterError):
    """The router does not take the key of its worker list."""


class RouterCertificateError(RouterError):
    """The router's certificate is for another host, has ended, or was signed by somebody else."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Verification of an https router: its pods share one certificate, for the pool's host name."""

    context: ssl.SSLContext
    server_hostname: str


class RouterAdmin:
    """One router replica, by its addresses. Keeps what the metrics said before, so keep it from pass to pass."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        flavor: RouterFlavor,
        url: str,
        metrics_url: str,
        admin_key: str | None,
        served_name: str,
        trust: Trust | None = None,
    ) -> None:
        self._session = session
        self._worker = PROGRAMS[flavor].worker(served_name)
        self._tls: dict[str, Any] = {}
        if trust is not None:
            self._tls = {"ssl": trust.context, "server_hostname": trust.server_hostname}
        self._url = url.rstrip("/")
        self._metrics_url = f"{metrics_url.rstrip('/')}/metrics"
        self._keys: tuple[str | None, ...] = (admin_key,)
        self._waiting = PROGRAMS[flavor].waiting()
        self._queued: dict[str, str] = {}
        self._nobody_waited_at: float | None = None
        """Monotonic seconds."""

    def set_keys(self, keys: Sequence[str]) -> None:
        """Present one of these from now on: while keys are rotated, some routers have the first, some the second."""
        self._keys = tuple(sorted(keys, key=lambda key: key != self._keys[0]))

    async def observe(self, name: str) -> Router:
        """Return this replica for a snapshot; one that does not answer is an observation, not an error."""
        try:
            registered = await self.workers()
        except RouterUnreachableError as error:
            log.debug("router %s: %s", name, error)
            return Router(name=name)
        except RouterError as error:
            log.warning("router %s: %s", name, error)
            certificate = isinstance(error, RouterCertificateError)
            reason = ConditionReason.CERTIFICATE_REFUSED if certificate else ConditionReason.ROUTER_REFUSES
            return Router(name=name, failure=Failure(reason=reason, message=printable(error, most=MAX_MESSAGE)))
        try:
            waiting, counts = await self._metrics()
        except RouterError as error:
            log.warning("router %s: its metrics are unknown: %s", name, error)
            return Router(name=name, answering=True, registered=registered)
        counted = tuple(replace(entry, answered=counts.get(entry.url, 0)) for entry in registered)
        waiting_seconds = self._waiting_seconds(waiting, now=monotonic())
        return Router(name=name, answering=True, registered=counted, waiting=waiting, waiting_seconds=waiting_seconds)

    def _waiting_seconds(self, waiting: int | None, *, now: float) -> float:
        if waiting == 0:
            self._nobody_waited_at = now
        return now - self._nobody_waited_at if waiting and self._nobody_waited_at is not None else 0.0

    async def workers(self) -> tuple[RegisteredWorker, ...]:
        """The worker list.

        Raises:
            RouterError: it cannot be read.
        """
        answer = await self._call("GET", "/workers", expect=200)
        try:
            # smg shows one that was removed for 5 s more; it sends nothing there.
            entries = [entry for entry in answer["workers"] if entry.get("status") != "draining"]
        except NONSENSE as error:
            raise RouterError(f"GET {self._url}/workers: no list of workers: {type(error).__name__}: {error}") from None
        return tuple(readable("routers", entries, _registered, name=lambda _: f"{self._url}/workers"))

    async def _metrics(self) -> tuple[int | None, dict[str, int | None]]:
        try:
            async with self._session.get(self._metrics_url, timeout=TIMEOUT) as response:
                response.raise_for_status()
                text = await read_text(response, limit_bytes=MAX_METRICS_BYTES)
                if not are_a_routers(text):
                    raise RouterError(f"GET {self._metrics_url}: these are no metrics of a router")
                return self._waiting.read(text, now=monotonic()), answered(text)
        except (aiohttp.ClientError, TimeoutError, *NONSENSE) as error:
            raise RouterUnreachableError(f"GET {self._metrics_url}: {_words(error)}") from None

    async def add(self, worker_url: str) -> None:
        """Put a worker that answers on the list, in the background of the router.

        Raises:
            RouterError: the router does not take it.
        """
        # The router tries an address until it answers and cannot be stopped; ten of those block its list.
        if await self._is_still_adding(worker_url):
            return
        # One that smg is still removing is refused as a duplicate; a later pass gets it in.
        answer = await self._call("POST", "/workers", expect=202, moot=409, json={"url": worker_url, **self._worker})
        worker_id = answer.get("worker_id")
        if isinstance(worker_id, str) and _is_id(worker_id):
            self._queued[worker_url] = worker_id

    async def remove(self, worker_id: str) -> None:
        """Remove a worker from the list: no new request goes to it, those in flight finish. One that is off stays off.

        Raises:
            RouterError: the router refuses.
        """
        await self._call("DELETE", f"/workers/{worker_id}", expect=202, moot=404)

    async def _is_still_adding(self, worker_url: str) -> bool:
        worker_id = self._queued.pop(worker_url, None)
        if worker_id is None:
            return False
        answer = await self._call("GET", f"/workers/{worker_id}", expect=200, moot=404)
        job = answer.get("job_status")
        if not isinstance(job, dict) or job.get("status") not in ("pending", "processing"):
            return False
        self._queued[worker_url] = worker_id
        return True

    async def _call(
        self, method: str, path: str, *, expect: int, moot: int | None = None, json: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Call the router and return the object it answers; empty for the status that says there is nothing to do."""
        first, *others = self._keys
        try:
            return await self._request(first, method, path, expect=expect, moot=moot, json=json)
        except RouterDeniedError:
            if not others:
                raise
        answer = await self._request(others[0], method, path, expect=expect, moot=moot, json=json)
        # The one that was right is tried first from now on.
        self._keys = (others[0], first)
        return answer

    async def _request(
        self, key: str | None, method: str, path: str, *, expect: int, moot: int | None, json: dict[str, Any] | None
    ) -> dict[str, Any]:
        url = self._url + path
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with self._session.request(
                method, url, json=json, headers=headers, timeout=TIMEOUT, **self._tls
            ) as response:
                if response.status == moot:
                    return {}
                if response.status in (401, 403):
                    raise RouterDeniedError(f"{method} {url}: status {response.status}: the admin key is refused")
                if response.status != expect:
                    said = await read_excerpt(response)
                    raise RouterError(f"{method} {url}: status {response.status}: {said}")
                answer = loads(await read_text(response, limit_bytes=MAX_LIST_BYTES))
        except aiohttp.ClientConnectorCertificateError as error:
            why = error.certificate_error
            raise RouterCertificateError(f"{url}: the certificate of spec.router.tls is refused: {why}") from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise RouterUnreachableError(f"{method} {url}: {_words(error)}") from None
        except AnswerTooLargeError as error:
            raise RouterError(f"{method} {url}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise RouterError(f"{method} {url}: the answer is not JSON: {error}") from None
        if not isinstance(answer, dict):
            raise RouterError(f"{method} {url}: the answer is not a JSON object")
        return answer


def _registered(entry: Mapping[str, Any]) -> RegisteredWorker:
    url, worker_id = entry["url"], entry["id"]
    if not isinstance(url, str) or url != printable(url, most=MAX_URL):
        raise ValueError(f"{url!r:.60} is no address of a worker")
    if not isinstance(worker_id, str) or not _is_id(worker_id):
        raise ValueError(f"{worker_id!r:.60} is no id of a worker")
    healthy, in_flight = entry.get("is_healthy"), _count(entry.get("load"), url)
    healthy = healthy if isinstance(healthy, bool) else None
    return RegisteredWorker(id=worker_id, url=url, in_flight=in_flight, healthy=healthy)


def _is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def _count(value: object, worker_url: str) -> int | None:
    count = count_of(value)
    if count is not None:
        return count
    log.warning(
        "the router says that %r requests are at %s, which is not a number of requests: left out", value, worker_url
    )
    return None


def _words(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
