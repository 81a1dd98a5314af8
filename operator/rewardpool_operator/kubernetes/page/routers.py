"""Counts of the routers, for rates, latencies and the requests at each worker.

Polled each second while the page is open, and each minute while it is not. The reconciler asks them too, but only on
the operator that acts, and at its own pace; both operators serve the page. Metrics need no key. However many pools
there are, so many routers are asked at a time, in turn.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Final

import aiohttp

from rewardpool_operator.routers.metrics import counts, in_flight
from rewardpool_page.source import Counts
from rewardpool_runtime.bounded import read_text

log = logging.getLogger(__name__)

MAX_ROUTERS: Final = 64
MAX_BYTES: Final = 4 << 20
TIMEOUT: Final = aiohttp.ClientTimeout(total=1.0)
FORGET_SECONDS: Final = 120.0


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Counts of one pool's routers."""

    counts: Counts | None = None
    """None where one of them did not say."""
    in_flight: Mapping[str, int | None] = field(default_factory=dict)
    """Requests by the worker's URL."""


class RouterCounts:
    """The newest answers of all pools' routers."""

    def __init__(self, session: aiohttp.ClientSession, *, clock: Callable[[], float] = time) -> None:
        self._session = session
        self._clock = clock
        self._asked_at: dict[str, float] = {}
        self._counted: dict[str, Counted] = {}

    async def refresh(self, routers: Mapping[str, Sequence[str]]) -> None:
        """Ask the routers of the pools that were asked least lately; forget pools that are not here."""
        now = self._clock()
        self._asked_at = {pool: at for pool, at in self._asked_at.items() if pool in routers}
        fresh = {pool for pool, at in self._asked_at.items() if now - at < FORGET_SECONDS}
        self._counted = {pool: counted for pool, counted in self._counted.items() if pool in fresh}
        due: list[str] = []
        room = MAX_ROUTERS
        for pool in sorted(routers, key=lambda pool: self._asked_at.get(pool, 0.0)):
            if routers[pool] and (not due or room >= len(routers[pool])):
                due.append(pool)
                room -= len(routers[pool])
        answers = await asyncio.gather(*(self._refresh_pool(routers[pool], now) for pool in due))
        self._counted |= dict(zip(due, answers, strict=True))
        self._asked_at |= dict.fromkeys(due, now)

    def get(self, pool: str) -> Counted:
        return self._counted.get(pool, Counted())

    async def _refresh_pool(self, urls: Sequence[str], now: float) -> Counted:
        texts = [text for text in await asyncio.gather(*(self._text(url) for url in urls)) if text is not None]
        try:
            found = [counts(text) for text in texts]
            busy = [in_flight(text) for text in texts]
        except ValueError as error:
            log.debug("metrics of %s: %s", urls, error)
            return Counted()
        # The sum of some of them would look as if requests had been taken back.
        return Counted(counts=_sum(found, at=now) if len(found) == len(urls) else None, in_flight=_added(busy))

    async def _text(self, url: str) -> str | None:
        try:
            async with self._session.get(f"{url}/metrics", timeout=TIMEOUT, allow_redirects=False) as response:
                response.raise_for_status()
                return await read_text(response, limit_bytes=MAX_BYTES)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            # One that starts, ends or is busy; the page shows no rate then.
            log.debug("the metrics of %s are unknown: %s", url, error)
            return None


def _sum(found: Sequence[Counts], *, at: float) -> Counts:
    within: dict[float, int] = {}
    for one in found:
        for bound, count in one.within.items():
            within[bound] = within.get(bound, 0) + count
    answered, seconds = sum(one.answered for one in found), sum(one.seconds for one in found)
    return Counts(answered=answered, seconds=seconds, within=within, at=at)


def _added(found: Sequence[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Requests by worker, over all routers; None where one of them says nonsense of it."""
    added: dict[str, int | None] = {}
    for one in found:
        for url, count in one.items():
            before = added.get(url, 0)
            added[url] = None if before is None or count is None else before + count
    return added
