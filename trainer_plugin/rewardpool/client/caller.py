"""One request, sent again until it is answered.

    attempt -> answer, or that of a second request beside a straggler (`hedging.py`)
            -> setback -> look the address up again, where that may help -> pause -> attempt … until the deadline

`retry.py` says what kinds of setback there are, `answer.py` what an answer means, `following.py` where the pool is,
`pace.py` how many requests may be in flight; the waiting is done here. A request whose worker failed goes to the same
router again, which by then avoids that worker.
"""

import asyncio
import itertools
import logging
import os
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import aiohttp

from rewardpool.client.hedging import Hedging, Race
from rewardpool.client.pace import Pace, Slots
from rewardpool.client.report import Ledger
from rewardpool.client.retry import FAILURES, Setback, kind_of_status, pause_seconds
from rewardpool.client.tracing import add_trace_context
from rewardpool.config import RewardConfig
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.discovery.find import discover
from rewardpool.discovery.following import Following, Turnover
from rewardpool.errors import DeadlineError, PoolAccessError, PoolError, SampleError, ScoreError
from rewardpool_api.trust import verifying_context

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""For one connection to the router. The address of a pod that is gone does not refuse, it is silent."""
MAX_ANSWER_BYTES = 4 << 20
"""A score takes a hundred bytes and a judgement some kilobytes; more than this is nonsense."""
LOOK_AGAIN_SECONDS = 1.0
"""At most this often is the address of an unreachable pool looked up again."""
LOOK_AGAIN_WAITING_SECONDS = 15.0
"""At most this often is that of a pool looked up again which is there and has no worker."""
LOG_SECONDS = 10.0
"""At most this often is a line about retries logged."""

T = TypeVar("T")

_IMPORT = uuid.uuid4().hex
_EFFORTS = itertools.count(1)
"""With the process, which may have been forked, they name a sample; a random number for each would cost more."""


@dataclass
class Effort:
    """What was done for one sample so far; `label` names it in messages."""

    label: str
    request_id: str = field(default_factory=lambda: f"{_IMPORT}-{os.getpid()}-{next(_EFFORTS)}")
    seconds: float = 0.0
    """From when its first attempt was due to its end."""
    attempts: int = 0
    setbacks: int = 0
    failures: float = 0.0
    """Setbacks at a worker, the only ones that are bounded by number; see `FAILURES`."""
    problem: str = ""
    """The last setback, in words."""
    denied: bool = False
    """The last setback was a refusal of the key."""
    nonsense: bool = False
    """The last setback was nonsense, so the router may well choose the same worker again."""
    refused_keys: set[str | None] = field(default_factory=set, repr=False)
    """Keys that were refused since all of them were tried last."""


class Caller:
    """Connections to one pool's router, wherever that is just now."""

    def __init__(
        self,
        config: RewardConfig,
        ledger: Ledger,
        *,
        find: Callable[..., Awaitable[Endpoint]] = discover,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
        hedging: Callable[..., Hedging] = Hedging,
    ) -> None:
        """Prepare; nothing is looked up or opened before `open`.

        Args:
            config: Which pool, and how patient to be with it.
            ledger: Where attempts are counted.
            find: Looks the pool up.
            clock: Monotonic seconds.
            sleep: Pauses between attempts.
            uniform: A random number between two bounds, for the jitter of pauses.
            hedging: Decides which requests are stragglers; one for each path, whose times differ.
        """
        self._clock = clock
        self._config = config
        self._ledger = ledger
        self._sleep = sleep
        self._uniform = uniform
        self._new_hedging = hedging
        self._hedging: dict[str, Hedging] = {}
        self._pace = Pace(config.concurrency)
        self._slots = Slots(config.concurrency)
        self._following = Following(config, ledger, find=find, clock=clock, uniform=uniform)
        self._turnover = Turnover(connections=config.concurrency, now=clock())
        self._logged_at = float("-inf")
        self._admitted = False
        self._admitted_key: str | None = None
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Find the pool. Raises what `discover` raises."""
        await self._following.begin()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the slots are the limit
            timeout=aiohttp.ClientTimeout(total=self._config.seconds_per_attempt, connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        log.info("using reward pool %s at %s, found by %s", self.endpoint.pool, self.endpoint.url, self.endpoint.origin)

    async def close(self) -> None:
        """Close the connections; may be called again."""
        await self._following.end()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @property
    def endpoint(self) -> Endpoint:
        """Where the pool is now, and what it serves."""
        return self._following.endpoint

    @property
    def concurrency(self) -> int:
        """Requests that may be in flight now, hedges not counted."""
        return self._pace.limit

    async def ask(
        self,
        effort: Effort,
        path: str,
        body: Callable[[Endpoint], dict[str, Any]],
        read: Callable[[int, bytes, str], T],
    ) -> T:
        """Send one request until it is answered.

        Args:
            effort: Keeps count of what was done, also when this raises.
            path: Of the request, below the pool's URL.
            body: Makes the request for an endpoint, or raises the SampleError that says why there is none.
            read: Makes of status, body and the sample's label a result, a SampleError or a Setback.

        Raises:
            SampleError: There is no answer, and there will be none.
            PoolError: The pool cannot be used.
        """
        async with self._slots:
            # One that was sent with others before has used up some of its time, and is counted.
            self._ledger.samples += effort.attempts == 0
            started = self._clock() - effort.seconds
            try:
                async with asyncio.timeout(self._config.deadline_seconds - effort.seconds):
                    return await self._until_answered(effort, path, body, read)
            except TimeoutError:
                if effort.denied:
                    # No trouble of this sample's: every further one would meet it too.
                    self._ledger.unscored += 1
                    raise self._no_access(self.endpoint, effort.problem) from None
                seconds, problem = (
                    self._config.deadline_seconds,
                    effort.problem or "the first attempt had no answer yet",
                )
                raise DeadlineError(effort.label, seconds, effort.attempts, problem) from None
            except asyncio.CancelledError:
                self._ledger.cancelled += 1
                raise
            except PoolError:
                self._ledger.unscored += 1
                raise
            finally:
                effort.seconds = self._clock() - started

    async def ask_once(
        self, efforts: Sequence[Effort], path: str, body: dict[str, Any], read: Callable[[int, bytes, str], T]
    ) -> T | None:
        """Send one request for several samples, once; None when it has no usable answer, whatever the reason.

        Args:
            efforts: Those of the samples.
            path: Of the request, below the pool's URL.
            body: The request.
            read: Makes of status, body and a label a result, a SampleError or a Setback.
        """
        whole = Effort(f"{efforts[0].label} and {len(efforts) - 1} others")
        async with self._slots:
            started = self._clock()
            self._ledger.samples += len(efforts)
            self._ledger.together += len(efforts)
            try:
                self._following.glance()
                return await self._hedged(whole, self.endpoint, path, body, read)
            except (Setback, SampleError) as trouble:
                log.debug("sending %s alone: %s", whole.label, trouble)
                self._ledger.splits += 1
                return None
            finally:
                for effort in efforts:
                    effort.attempts = whole.attempts
                    effort.seconds = self._clock() - started

    def given_up(self) -> None:
        """Count a sample that was sent and that nobody wants any more."""
        self._ledger.cancelled += 1

    async def _until_answered(
        self,
        effort: Effort,
        path: str,
        body: Callable[[Endpoint], dict[str, Any]],
        read: Callable[[int, bytes, str], T],
    ) -> T:
        self._following.glance()
        while True:
            endpoint = self.endpoint
            try:
                return await self._hedged(effort, endpoint, path, body(endpoint), read)
            except Setback as setback:
                await self._recover(effort, endpoint, setback)

    async def _hedged(
        self, effort: Effort, endpoint: Endpoint, path: str, body: dict[str, Any], read: Callable[[int, bytes, str], T]
    ) -> T:
        """One request, with a second one beside it when it is a straggler. Raises what `_attempt` does."""
        if not self._config.hedge:
            return await self._attempt(effort, endpoint, path, body, read)
        if path not in self._hedging:
            self._hedging[path] = self._new_hedging(concurrency=self._config.concurrency)
        race = Race(
            lambda: self._attempt(effort, endpoint, path, body, read),
            self._hedging[path],
            on_hedge=self._ledger.hedge,
            at_once=effort.nonsense,
        )
        try:
            return await race.run()
        finally:
            self._ledger.hedges_won += race.hedge_won

    async def _attempt(
        self, effort: Effort, endpoint: Endpoint, path: str, body: dict[str, Any], read: Callable[[int, bytes, str], T]
    ) -> T:
        """One request. Raises Setback where another may help, else SampleError."""
        if self._session is None:
            raise RuntimeError("the pool is closed")
        effort.attempts += 1
        self._ledger.attempts += 1
        sent_at = self._clock()
        headers = {"x-request-id": f"{effort.request_id}-{effort.attempts}"}
        key = self._key_for(effort, endpoint)
        add_trace_context(headers)
        if self._turnover.is_due(sent_at):
            headers["Connection"] = "close"
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        try:
            # A redirect would carry the key to wherever it points.
            async with self._session.post(
                endpoint.url + path,
                json=body,
                headers=headers,
                allow_redirects=False,
                ssl=True if endpoint.ca is None else _verifying(endpoint.ca),
            ) as answer:
                status, content = answer.status, await _read(answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientResponseError) as error:
            # The last is an answer that is no HTTP, as of a router that changed to HTTPS.
            raise Setback(
                "unreachable", f"{endpoint.url}, found by {endpoint.origin}, cannot be reached: {error}"
            ) from error
        except TimeoutError as error:
            self._strained(sent_at)
            raise Setback("worker", f"no answer within {self._config.seconds_per_attempt:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Setback("worker", f"the connection broke: {str(error) or type(error).__name__}") from error
        if status == 200:
            self._admitted, self._admitted_key = True, key
            self._pace.answered(self._clock() - sent_at)
            self._slots.resize(self._pace.limit)
        elif kind_of_status(status) == "denied":
            effort.refused_keys.add(key)
        try:
            return read(status, content, effort.label)
        except Setback as setback:
            if setback.kind == "busy":
                self._strained(sent_at)
            raise

    def _strained(self, sent_at: float) -> None:
        """The pool cannot take as much as was in flight when that request was sent."""
        self._pace.strained(sent_at=sent_at, now=self._clock())
        self._slots.resize(self._pace.limit)

    def _key_for(self, effort: Effort, endpoint: Endpoint) -> str | None:
        """One that was not refused yet, the one that worked last before others; when all were refused, over again."""
        keys = sorted(endpoint.keys, key=lambda key: key != self._admitted_key)
        if effort.refused_keys.issuperset(keys):
            effort.refused_keys.clear()
        return next(key for key in keys if key not in effort.refused_keys)

    async def _recover(self, effort: Effort, used: Endpoint, setback: Setback) -> None:
        """Do what makes another attempt worth while, and pause; or raise the error that ends the sample."""
        effort.setbacks += 1
        effort.problem = setback.problem
        effort.denied = setback.kind == "denied"
        effort.nonsense = setback.kind == "nonsense"
        now = self._clock()
        match setback.kind:
            case "denied":
                await self._following.moved(used, since=now - LOOK_AGAIN_SECONDS if self._admitted else now)
                if not self._admitted and effort.refused_keys.issuperset(self.endpoint.keys):
                    raise self._no_access(used, setback.problem)
            case "missing":
                if not await self._following.moved(used, since=now):
                    raise ScoreError(
                        effort.label, f"{used.url}, found by {used.origin}, is no reward pool: {setback.problem}"
                    )
            case "unreachable":
                moved = await self._following.moved(used, since=now - LOOK_AGAIN_SECONDS)
                if not moved and self._following.problem:
                    effort.problem += f"; looking it up again: {self._following.problem}"
            case "waiting":
                # No hurry, but the address may have become another pool's.
                await self._following.moved(used, since=now - LOOK_AGAIN_WAITING_SECONDS)
            case "worker" | "nonsense":
                effort.failures += FAILURES[setback.kind]
                if effort.failures >= self._config.attempts:
                    raise ScoreError(
                        effort.label, f"no usable answer in {effort.attempts} attempts; last: {setback.problem}"
                    )
        self._ledger.retry(setback.kind, first=effort.setbacks == 1)
        self._log_retry(effort, setback)
        if effort.denied and not effort.refused_keys.issuperset(self.endpoint.keys):
            # Another key is tried at once: the connection is likely the same, and then so is the router.
            return
        await self._sleep(pause_seconds(effort.setbacks, setback.kind, uniform=self._uniform))

    @staticmethod
    def _no_access(used: Endpoint, problem: str) -> PoolAccessError:
        return PoolAccessError(f"{used.pool} at {used.url} does not take the key found by {used.origin}: {problem}")

    def _log_retry(self, effort: Effort, setback: Setback) -> None:
        log.debug("retrying sample %s after attempt %d: %s", effort.label, effort.attempts, setback.problem)
        now = self._clock()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.warning(
                "%d samples needed a retry so far %s; now sample %s, attempt %d (request %s-%d): %s",
                self._ledger.retried,
                dict(self._ledger.setbacks),
                effort.label,
                effort.attempts,
                effort.request_id,
                effort.attempts,
                setback.problem,
            )


_verifying = lru_cache(maxsize=8)(verifying_context)
"""One context for the same certificates, since connections are kept by context."""


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The whole answer, of bounded size. Raises Setback when it is larger."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise Setback("nonsense", f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)
