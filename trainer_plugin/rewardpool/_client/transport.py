"""Shared state of all requests to one pool: its address, open connections, and the limit on requests in flight.

It is one for each `Pool`, or for all that come from `Pool.shared` with one config on one event loop.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Self

import orjson

from rewardpool._client.connections import open_files
from rewardpool._client.connections.exchange import Exchange
from rewardpool._client.connections.http import HttpClient
from rewardpool._client.connections.target import RequestTarget, target
from rewardpool._client.request_timer import RequestTimer
from rewardpool._client.rules.breaker import Breaker
from rewardpool._client.rules.hedging import FLOOR_SECONDS, Hedging
from rewardpool._client.rules.in_work import PATIENCE_SECONDS, Inquiry, InWork, Listing
from rewardpool._client.rules.limiter import AdaptiveLimit, AdaptiveLimiter
from rewardpool._client.rules.outage import SILENCE_SECONDS, Outage
from rewardpool._config import RewardConfig
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._discovery.find import check_address, find_pool
from rewardpool._discovery.resolver import EndpointResolver
from rewardpool_api.names import WORKERS_METRICS_PATH
from rewardpool_runtime.trust import verifying_context

log = logging.getLogger(__name__)

# After this time workers are asked again how many places they have, while these are the bound.
PLACES_SECONDS = 5.0


class Connections:
    """Connections to one pool's routers, wherever those are just now; an async context manager.

    Entering it finds the pool and raises what `discover` raises, PoolAccessError where its address is known in its
    cluster alone, and ConfigError where this process may not open as many connections as `concurrency` needs. What is
    in flight when it is left fails.
    """

    def __init__(
        self,
        config: RewardConfig,
        *,
        find: Callable[..., Awaitable[Endpoint]] = find_pool,
        clock: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
        hedging: Callable[..., Hedging] = Hedging,
    ) -> None:
        """Prepare; nothing is looked up or opened before it is entered.

        Args:
            clock: Monotonic seconds, for how often the pool is looked up.
            call_later: Calls something after so many seconds, the pause before an attempt; default: the event loop's.
            uniform: A random number between two bounds, for the jitter of pauses.
            hedging: Decides which requests are stragglers; one for each path, whose times differ.
        """
        self.config = config
        self.clock = clock
        self._call_later = call_later
        self.uniform = uniform
        self.resolver = EndpointResolver(config, find=find, clock=clock, uniform=uniform)
        self.slots = AdaptiveLimiter(config.concurrency)
        # Each ends the samples of a queue elsewhere that wait since a time, as `AdaptiveLimiter.expire_before`.
        self.queues: set[Callable[[float], None]] = set()
        self.breaker = Breaker(config.breaker_threshold)
        # Whether the pool has accepted a key.
        self.admitted = False
        self._admitted_key: str | None = None
        self._new_hedging = hedging
        self._hedging: dict[str, Hedging] = {}
        self._pace = AdaptiveLimit(config.concurrency)
        # The next three exist from entering on.
        self.timer: RequestTimer
        self.outage: Outage
        self.in_work: InWork
        self._places = 0
        """Places of all workers by their last answers; 0 while unknown."""
        self._http: HttpClient | None = None

    async def __aenter__(self) -> Self:
        open_files.ensure_limit(self.config.concurrency, hedge=self.config.hedge)
        await self.resolver.begin()
        await check_address(self.endpoint)
        self.timer = RequestTimer(
            soonest_seconds=self.soonest_seconds / 2,
            most_left_open=self.config.concurrency // 2,
            also=self._look_at_queues,
        )
        self.outage = Outage(uniform=self.uniform)
        self.in_work = InWork(
            ask=self._send_inquiry,
            clock=asyncio.get_running_loop().time,
            listed=self._listed,
            most_pause=self.config.timeout / 8,
            uniform=self.uniform,
        )
        self._http = HttpClient(clock=self.clock, uniform=self.uniform)
        log.info("using reward pool %s at %s, found by %s", self.endpoint.pool, self.endpoint.url, self.endpoint.origin)
        if self.endpoint.is_fixed_size and self.endpoint.model_type == "Function":
            await self.in_work.poll(within=PATIENCE_SECONDS)
        for sentence in self.endpoint.disagreements(self.config.timeout):
            log.warning("reward pool %s: %s", self.endpoint.pool, sentence)
        if self.endpoint.not_ready:
            log.warning("samples wait for reward pool %s: %s", self.endpoint.pool, self.endpoint.not_ready)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.resolver.end()
        finally:  # also when it is cancelled meanwhile
            self.timer.close()
            self.outage.close()
            self.in_work.close()
            http, self._http = self._http, None
            if http is not None:
                await http.close()

    def _look_at_queues(self, now: float) -> None:
        """End waits for a slot that took a sample's whole deadline while no answer came; check whether it grew."""
        if self._places and self.endpoint.is_fixed_size:
            self.in_work.refresh(now, older_than=PLACES_SECONDS)
        if now - self.outage.answered_at >= SILENCE_SECONDS:
            limit = now - self.config.timeout
            for expire_before in (self.slots.expire_before, *self.queues):
                expire_before(limit)

    @cached_property
    def soonest_seconds(self) -> float:
        """Seconds after a request was sent before which nothing is due."""
        floor = self._new_hedging(concurrency=1).floor_seconds if self.config.hedge else FLOOR_SECONDS
        return min(floor, self.config.timeout)

    @property
    def endpoint(self) -> Endpoint:
        return self.resolver.endpoint

    def _send_inquiry(self, inquiry: Inquiry) -> None:
        if self._http is not None:
            endpoint = self.endpoint
            key = self._admitted_key if self.admitted else endpoint.key
            self._http.send(inquiry, _target(endpoint, WORKERS_METRICS_PATH, key, method="GET"), b"", b"")

    def _listed(self, listing: Listing) -> None:
        self._places = listing.places
        self.slots.resize(self.concurrency)

    def call_later(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        return (self._call_later or asyncio.get_running_loop().call_later)(seconds, then)

    @property
    def concurrency(self) -> int:
        """Requests that may be in flight now, hedges not counted."""
        # Requests beyond the workers' places wait here; not where the pool grows by those that wait at its routers.
        if self._places and self.endpoint.is_fixed_size:
            return min(self._pace.limit, self._places)
        return self._pace.limit

    def hedging(self, path: str) -> Hedging | None:
        if not self.config.hedge:
            return None
        if path not in self._hedging:
            self._hedging[path] = self._new_hedging(concurrency=self.config.concurrency)
        return self._hedging[path]

    def answered(self, seconds: float, weight: int) -> None:
        self._pace.answered(seconds, weight)
        self.slots.resize(self.concurrency)
        self.pool_answered()

    def pool_answered(self) -> None:
        """A worker answered a sample, with its score or with an error of the contract: the pool is not away."""
        if self.outage.answered():
            self.timer.for_each(lambda one: one.send_again(self.outage.spread_seconds()))

    def overloaded(self, *, sent_at: float, now: float) -> None:
        """The pool could not take as much as was in flight when that request was sent (seconds of one clock)."""
        self._pace.overloaded(sent_at=sent_at, now=now)
        self.slots.resize(self.concurrency)

    def send(
        self, exchange: Exchange, endpoint: Endpoint, path: str, *, key: str | None, headers: str, body: bytes
    ) -> None:
        """Send a request once; `body` is its JSON, and the exchange is called with the answer.

        Raises:
            RuntimeError: The pool is closed.
        """
        if self._http is None:
            raise RuntimeError("the pool is closed")
        # On the free connection that was answered last: a request beside a straggler uses another one, and where that
        # leads to another router, one that answers.
        self._http.send(exchange, _target(endpoint, path, key), headers.encode("latin-1"), body)

    def key_accepted(self, key: str | None) -> None:
        self.admitted, self._admitted_key = True, key

    def key_for(self, endpoint: Endpoint, refused: frozenset[str | None]) -> str | None:
        """Return a key that is not among the refused ones, first the one that worked last."""
        if not endpoint.other_keys and not refused:
            return endpoint.key
        keys = sorted(endpoint.keys, key=lambda key: key != self._admitted_key)
        return next(key for key in keys if key not in refused)


def _target(endpoint: Endpoint, path: str, key: str | None, *, method: str = "POST") -> RequestTarget:
    tls = None if endpoint.ca is None else _verifying(endpoint.ca)
    return target(endpoint.url + path, key=key, tls=tls, is_own=endpoint.is_own, method=method)


# One context for the same certificates, since connections are kept by context.
_verifying = lru_cache(maxsize=8)(verifying_context)


def to_json(content: Mapping[str, Any]) -> bytes:
    """A request's body. Trap: what is not a number becomes null, so it must not get here."""
    try:
        return orjson.dumps(content)
    except TypeError:  # a whole number of more than 64 bits, half of a character: the server says what it thinks of it
        return json.dumps(content).encode()
