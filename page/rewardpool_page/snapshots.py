"""All pools as the page shows them: computed once a second at most for all who watch, and now and then for history."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from time import monotonic, time
from typing import Any, Final, Literal

from rewardpool_api.contract import FAULTS
from rewardpool_page.history import SAMPLE_SECONDS, History, Remembered
from rewardpool_page.score_history import ScoreInterval
from rewardpool_page.source import PoolsSource, Seen
from rewardpool_page.view import Summary, desired_steps, detail_of, summary_of

log = logging.getLogger(__name__)

SNAPSHOT_SECONDS: Final = 1.0
WATCHED_SECONDS: Final = 5.0
UNWATCHED_SECONDS: Final = 60.0
Period = Literal["hour", "day", "week"]
PERIODS: Final[dict[Period, float]] = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0}
MAX_POOLS: Final = 500  # those with most to do come first


class PoolSnapshot:
    """One pool at one look; what of it is not asked for is not computed."""

    def __init__(self, seen: Seen, remembered: Remembered, at: float) -> None:
        self.namespace = seen.pool.metadata.namespace
        self._seen = seen
        self._remembered = remembered
        self._at = at
        self._histories: dict[Period, dict[str, Any]] = {}

    @cached_property
    def summary(self) -> Summary:
        return summary_of(self._seen.pool, self._remembered.traffic)

    @cached_property
    def detail(self) -> dict[str, Any]:
        return asdict(detail_of(self._seen, self._remembered))

    def history(self, period: Period) -> dict[str, Any]:
        """Return that time as JSON: parallel lists, which take a third of objects."""
        if period not in self._histories:
            self._histories[period] = self._history_of(period)
        return self._histories[period]

    def _history_of(self, period: Period) -> dict[str, Any]:
        scaling, remembered = self._seen.pool.status.scaling, self._remembered
        samples = remembered.samples if period == "hour" else remembered.means.since(self._at - PERIODS[period])
        scores = remembered.scores.since(self._at - PERIODS[period], is_recent=period == "hour")
        return {
            "period": period,
            "desired": desired_steps(scaling.history if scaling else (), samples),
            "times": [round(sample.at, 1) for sample in samples],
            "ready": [sample.ready for sample in samples],
            "in_flight": [sample.in_flight for sample in samples],
            "waiting": [sample.waiting for sample in samples],
            "per_second": [_short(sample.per_second) for sample in samples],
            "mean_seconds": [_short(sample.mean_seconds) for sample in samples],
            "p95_seconds": [_short(sample.p95_seconds) for sample in samples],
            "scores": {job: _scores_of(parts) for job, parts in scores.items()},
        }


def _scores_of(parts: Sequence[ScoreInterval]) -> dict[str, Any]:
    failures = {fault: [part.failures[number] for part in parts] for number, fault in enumerate(FAULTS)}
    return {
        "times": [round(part.at, 1) for part in parts],
        "mean": [_short(part.mean) for part in parts],
        "standard_deviation": [_short(part.standard_deviation) for part in parts],
        "failures": {fault: counts for fault, counts in failures.items() if any(counts)},
        "retries": [part.retries for part in parts],
    }


def _short(value: float | None) -> float | None:
    """Return it with as many digits as a picture needs; None also where they round to infinity, which JSON lacks."""
    short = None if value is None else float(f"{value:.4g}")
    return short if short is None or math.isfinite(short) else None


class PageSnapshot:
    """All pools at one look."""

    def __init__(self, at: float, pools: dict[str, PoolSnapshot]) -> None:
        """Keep what was seen.

        Args:
            at: Unix time in seconds.
            pools: by `namespace/name`.
        """
        self.at = at
        self.pools = pools

    def listed(self, namespaces: frozenset[str]) -> list[dict[str, Any]]:
        """The list of pools of these namespaces, as JSON: what needs a person first, then what has most to do."""
        lines = [pool.summary for pool in self.pools.values() if pool.namespace in namespaces]
        lines.sort(key=lambda line: (line.tone != "bad", -(line.waiting or 0), -(line.in_flight or 0), line.key))
        return [asdict(line) for line in lines[:MAX_POOLS]]


class Snapshots:
    """The newest snapshot, for all who watch."""

    def __init__(
        self,
        source: PoolsSource,
        *,
        history: History | None = None,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        """Look at nothing yet.

        Args:
            clock: monotonic seconds.
            wall_clock: Unix seconds.
        """
        self._source = source
        self._clock = clock
        self._wall_clock = wall_clock
        self._history = history or History()
        self._lock = asyncio.Lock()
        self._latest: PageSnapshot | None = None
        self._looked_at = 0.0
        self._asked_at = float("-inf")
        self._counted_at = float("-inf")

    async def latest(self) -> PageSnapshot:
        """The newest one, for somebody who watches; a look is taken where that is older than a second.

        Raises:
            OSError: the pools cannot be read.
        """
        self._asked_at = self._clock()
        return await self._newest()

    async def _newest(self) -> PageSnapshot:
        async with self._lock:
            if self._latest is None or self._clock() - self._looked_at >= SNAPSHOT_SECONDS:
                began = self._clock()
                is_watched = began - self._asked_at < WATCHED_SECONDS
                counted = is_watched or began - self._counted_at >= UNWATCHED_SECONDS
                pools, now = await self._source.observe(counted=counted), self._wall_clock()
                self._looked_at = self._clock()
                self._counted_at = began if counted else self._counted_at
                self._history.record(pools, now=now, counted=counted)
                by_key = {seen.pool.key: PoolSnapshot(seen, self._history.get(seen.pool.key), now) for seen in pools}
                self._latest = PageSnapshot(now, by_key)
            return self._latest

    async def remember(self) -> None:
        """Look every few seconds, so that there is a history for who comes later; until cancelled."""
        while True:
            await self.remember_once()
            await asyncio.sleep(SAMPLE_SECONDS)

    async def remember_once(self) -> None:
        """Take a look for the history, though nobody may watch."""
        try:
            await self._newest()
        except OSError as error:
            log.warning("the pools cannot be read: %s", error)
