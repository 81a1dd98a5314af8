"""What all requests to one pool share: where it is, open connections, and how many requests at a time it bears.

It is one for each `Pool`, or for all that come from `Pool.shared` with one config on one event loop.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import aiohttp
from yarl import URL

from rewardpool.client.breaker import Breaker
from rewardpool.client.hedging import FLOOR_SECONDS, Hedging
from rewardpool.client.limiter import AdaptiveLimiter, Pace
from rewardpool.client.outage import Outage
from rewardpool.client.retry import RetryableError, kind_of_status, retry_after_seconds
from rewardpool.client.timers import Watch
from rewardpool.client.tracing import add_trace_context
from rewardpool.config import RewardConfig
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.discovery.find import find_pool
from rewardpool.discovery.following import ConnectionRecycler, Following
from rewardpool_runtime.trust import verifying_context

if TYPE_CHECKING:
    from rewardpool.client.request import ScoreRequest

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""For one connection to the router. The address of a pod that is gone does not refuse, it is silent."""
MAX_ANSWER_BYTES = 4 << 20
"""A score takes a hundred bytes and a judgement some kilobytes; more than this is nonsense."""


class Answer(NamedTuple):
    """What came back; `retry_after` is in seconds, where the server named any."""

    status: int
    body: bytes
    retry_after: float | None


@dataclass(slots=True)
class _Used:
    """What is known of the connection that a request goes on."""

    reused: bool = False
    """It was open before."""


class Connections:
    """Connections to one pool's routers, wherever those are just now; an async context manager.

    Entering it finds the pool and raises what `discover` raises. What is in flight when it is left fails.
    """

    def __init__(
        self,
        config: RewardConfig,
        *,
        find: Callable[..., Awaitable[Endpoint]] = find_pool,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
        hedging: Callable[..., Hedging] = Hedging,
    ) -> None:
        """Prepare; nothing is looked up or opened before it is entered.

        Args:
            config: Which pool, and how patient to be with it.
            find: Looks the pool up.
            clock: Monotonic seconds, for how often the pool is looked up.
            sleep: Pauses between attempts.
            uniform: A random number between two bounds, for the jitter of pauses.
            hedging: Decides which requests are stragglers; one for each path, whose times differ.
        """
        self.config = config
        self.clock = clock
        self.sleep = sleep
        self.uniform = uniform
        self.following = Following(config, find=find, clock=clock, uniform=uniform)
        self.slots = AdaptiveLimiter(config.concurrency)
        self.queues: set[Callable[[float], None]] = set()
        """Of samples that wait elsewhere: each ends what waits since a time, as `AdaptiveLimiter.expire_before`."""
        self.breaker = Breaker(config.breaker_threshold)
        self.admitted = False
        """Whether the pool ever took a key."""
        self._admitted_key: str | None = None
        self._new_hedging = hedging
        self._hedging: dict[str, Hedging] = {}
        self._pace = Pace(config.concurrency)
        self._turnover = ConnectionRecycler(connections=config.concurrency, now=clock())
        self._watch: Watch | None = None
        self._outage: Outage | None = None
        self._session: aiohttp.ClientSession | None = None
        self._fresh_session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        await self.following.begin()
        self._watch = Watch(
            soonest_seconds=self.soonest_seconds,
            most_left_open=self.config.concurrency // 2,
            also=self._look_at_queues,
        )
        self._outage = Outage(sleep=self.sleep, uniform=self.uniform)
        self._session = _session(keep=True)
        self._fresh_session = _session(keep=False)
        log.info("using reward pool %s at %s, found by %s", self.endpoint.pool, self.endpoint.url, self.endpoint.origin)
        if self.endpoint.not_ready:
            log.warning("samples wait for reward pool %s: %s", self.endpoint.pool, self.endpoint.not_ready)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.following.end()
        if self._watch is not None:
            await self._watch.close()
        if self._outage is not None:
            self._outage.close()
        sessions, self._session, self._fresh_session = (self._session, self._fresh_session), None, None
        for session in filter(None, sessions):
            await session.close()

    def _look_at_queues(self, now: float) -> None:
        """End waits for a slot that took a sample's whole deadline while nobody was answered."""
        limit = now - self.config.timeout
        if self.outage.answered_at <= limit:
            for expire_before in (self.slots.expire_before, *self.queues):
                expire_before(limit)

    @cached_property
    def soonest_seconds(self) -> float:
        """Nothing is due earlier than this after a request was sent."""
        floor = self._new_hedging(concurrency=1).floor_seconds if self.config.hedge else FLOOR_SECONDS
        return min(floor, self.config.seconds_per_attempt, self.config.timeout)

    @property
    def endpoint(self) -> Endpoint:
        """Where the pool is now, and what it serves."""
        return self.following.endpoint

    @property
    def watch(self) -> Watch:
        """Looks at what is in flight."""
        if self._watch is None:
            raise RuntimeError("enter the pool first: async with Pool(config) as pool")
        return self._watch

    @property
    def outage(self) -> Outage:
        """What is known of the pool's being away."""
        if self._outage is None:
            raise RuntimeError("enter the pool first: async with Pool(config) as pool")
        return self._outage

    @property
    def concurrency(self) -> int:
        """Requests that may be in flight now, hedges not counted."""
        return self._pace.limit

    def hedging(self, path: str) -> Hedging | None:
        """What is usual for requests of that path; None where none is hedged."""
        if not self.config.hedge:
            return None
        if path not in self._hedging:
            self._hedging[path] = self._new_hedging(concurrency=self.config.concurrency)
        return self._hedging[path]

    def answered(self, seconds: float) -> None:
        """A request was answered after so long."""
        self._pace.answered(seconds)
        self.slots.resize(self._pace.limit)
        self.pool_answered()

    def pool_answered(self) -> None:
        """Somebody at the pool answered a sample, with its score or with what is wrong with it."""
        self.breaker.answered()
        if self.outage.answered():
            self.watch.everyone(lambda one: one.send_again(self.outage.spread_seconds()))

    def overloaded(self, *, sent_at: float, now: float) -> None:
        """The pool could not take as much as was in flight when that request was sent (seconds of one clock)."""
        self._pace.overloaded(sent_at=sent_at, now=now)
        self.slots.resize(self._pace.limit)

    async def send(self, request: "ScoreRequest[Any]", endpoint: Endpoint, content: dict[str, Any]) -> Answer:
        """Send a request once, and return the answer.

        It goes on the connection that was answered last among those that are free. So one that is sent beside a
        straggler goes on another connection, and where that leads to another router, to one that answers.

        Raises:
            RetryableError: There is no answer.
        """
        session = self._fresh_session if request.kind == "stale" else self._session
        if session is None:
            raise RuntimeError("the pool is closed")
        key = self._key_for(request, endpoint)
        headers = {"Content-Type": "application/json", "x-request-id": request.id}
        add_trace_context(headers)
        if self._turnover.is_due(self.clock()):
            headers["Connection"] = "close"
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        used = _Used()
        try:
            # A redirect would carry the key to wherever it points.
            async with session.post(
                _url(endpoint.url, request.path),
                data=json.dumps(content).encode(),
                headers=headers,
                allow_redirects=False,
                ssl=True if endpoint.ca is None else _verifying(endpoint.ca),
                trace_request_ctx=used,
            ) as answer:
                used.reused = False  # an answer has begun: who breaks off now is the server
                status, body = answer.status, await _read(answer)
                retry_after = retry_after_seconds(answer.headers.get("Retry-After"), now=datetime.now(UTC))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientResponseError) as error:
            # The last is an answer that is no HTTP, as of a router that changed to HTTPS.
            raise RetryableError(
                "unreachable", f"{endpoint.url}, found by {endpoint.origin}, cannot be reached: {error}"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            if used.reused:
                raise RetryableError("stale", f"a connection that was kept open broke: {reason}") from error
            raise RetryableError("worker", f"the connection broke: {reason}") from error
        if status == 200:
            self.admitted, self._admitted_key = True, key
        elif kind_of_status(status) == "denied":
            request.refused_keys |= {key}
        return Answer(status, body, retry_after)

    def _key_for(self, request: "ScoreRequest[Any]", endpoint: Endpoint) -> str | None:
        """One that was not refused yet, the one that worked last before others; when all were refused, over again."""
        if not endpoint.other_keys and not request.refused_keys:
            return endpoint.key
        keys = sorted(endpoint.keys, key=lambda key: key != self._admitted_key)
        if request.refused_keys.issuperset(keys):
            request.refused_keys = frozenset()
        return next(key for key in keys if key not in request.refused_keys)


def _session(*, keep: bool) -> aiohttp.ClientSession:
    """One that keeps its connections open, and says so of those it uses again, or opens one for each request."""
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(_note_reused)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=not keep),  # the slots are the limit
        # The time of the whole is watched for all requests at once.
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[tracing],
    )


async def _note_reused(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx.reused = True


_verifying = lru_cache(maxsize=8)(verifying_context)
"""One context for the same certificates, since connections are kept by context."""


@lru_cache(maxsize=64)
def _url(base: str, path: str) -> URL:
    return URL(base + path)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """The whole answer, of bounded size. Raises RetryableError when it is larger."""
    length = answer.content_length
    if length is not None and length <= MAX_ANSWER_BYTES and "Content-Encoding" not in answer.headers:
        return await answer.read()
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise RetryableError("nonsense", f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)
