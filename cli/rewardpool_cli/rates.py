"""Samples per second of pools: how fast their routers' counters of requests grow."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from rewardpool_api import RewardPool

# It does not count requests for a router's own list and health.
REQUESTS: Final = "smg_router_requests_total"


class Rates:
    """Remembers the counters from one look to the next.

    Args:
        total: requests that a pool's routers count; None where that is not known.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        total: Callable[[RewardPool], Awaitable[float | None]],
        *,
        limit: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._total = total
        self._limit = limit
        self._clock = clock
        self._before: dict[str, tuple[float, float]] = {}
        """Pool -> monotonic time and requests of the last look."""

    async def measure(self, pools: Sequence[RewardPool]) -> dict[str, float]:
        """Samples per second since the last look, for the pools where that is known."""
        measured = pools[: self._limit]
        totals = await asyncio.gather(*(self._total(pool) for pool in measured))
        rates, now = {}, self._clock()
        for pool, total in zip(measured, totals, strict=True):
            before = self._before.pop(pool.key, None)
            if total is None:
                continue
            self._before[pool.key] = now, total
            # Fewer than before: a router was replaced.
            if before is not None and total >= before[1]:
                rates[pool.key] = (total - before[1]) / (now - before[0])
        return rates


def requests_in(text: str) -> float:
    """The requests that a router's metrics count."""
    families = text_string_to_metric_families(text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == REQUESTS)
