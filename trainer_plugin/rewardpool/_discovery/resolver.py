"""Address of a pool, also after it moved, changed its key, or got more routers.

    looked up: at the start, when a request's trouble says that it may help, and about once a minute while it is used

The last is so that a change is known before requests fail. A watch for each of a thousand training processes would cost
an API server more than these two small requests a minute, and would have to be renewed just as often.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rewardpool._config import RewardConfig
from rewardpool._discovery.endpoint import Endpoint
from rewardpool.errors import RewardPoolError

log = logging.getLogger(__name__)

# Shortest and longest time between two look-ups of a pool without trouble; random, so that processes spread.
REFRESH_SECONDS = (45.0, 75.0)


class EndpointResolver:
    def __init__(
        self,
        config: RewardConfig,
        *,
        find: Callable[..., Awaitable[Endpoint]],
        clock: Callable[[], float],
        uniform: Callable[[float, float], float],
    ) -> None:
        """Prepare; the arguments are those of `Connections`."""
        self._config = config
        self._find = find
        self._clock = clock
        self._uniform = uniform
        self._endpoint: Endpoint | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
        self._refresh_at = float("inf")
        self.rediscoveries = 0
        # Why the last look-up failed; empty when it did not.
        self.problem = ""
        # Why the pool could not score when it was looked up last; empty when it could.
        self.not_ready = ""

    async def begin(self) -> None:
        """Find the pool. Raises what `discover` raises."""
        self._endpoint = await self._find(self._config)
        self.not_ready = self._endpoint.not_ready
        self._plan_refresh()

    async def end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            raise RuntimeError("enter the pool first: async with Pool(config) as pool")
        return self._endpoint

    def refresh_when_due(self) -> None:
        """Look the pool up beside the requests when it is time; called for each of them."""
        if self._clock() >= self._refresh_at:
            self._plan_refresh()
            self.look_up()

    def _plan_refresh(self) -> None:
        self._refresh_at = self._clock() + self._uniform(*REFRESH_SECONDS)

    def moved(self, used: Endpoint, *, since: float) -> bool | None:
        """Return whether address or key differ from those used; None: not looked up since then (the clock's).

        A look-up that failed leaves the pool where it was.
        """
        if self._endpoint is not used:
            return True
        return False if self._looked_at >= since else None

    def look_up(self) -> asyncio.Task[None]:
        """The look-up that is under way, or a new one; one that was under way may have begun too early."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_up())
        return self._looking

    async def _look_up(self) -> None:
        used, began = self.endpoint, self._clock()
        self.rediscoveries += 1
        try:
            found = await self._find(self._config, require_ready=False)
        except RewardPoolError as error:
            if str(error) != self.problem:
                log.warning("looking up reward pool %s again failed: %s", used.pool, error)
            self.problem = str(error)
            return
        finally:
            self._looked_at = began
        self.problem, self.not_ready = "", found.not_ready
        if (found.url, found.keys, found.ca) != (used.url, used.keys, used.ca):
            what = "has other keys or certificates" if found.url == used.url else f"is now at {found.url}"
            log.warning("reward pool %s %s, found by %s", found.pool, what, found.origin)
        elif found.serves == used.serves:
            return
        if _sources(found) != _sources(used):
            log.warning("reward pool %s serves %s, and served %s", found.pool, _sources(found), _sources(used))
        self._endpoint = found


def _sources(endpoint: Endpoint) -> str:
    return " and ".join(
        f"{one.source}{f' at {one.commit}' if one.commit else ''} (revision {one.revision})"
        for one in endpoint.revisions
    )
