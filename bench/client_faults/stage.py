"""Where a fault is played: a fleet, and a client that streams samples through it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Self

from support.fleet import Fleet

from client_faults.first_answer import FirstAnswer
from client_faults.stand_in_worker import StandInWorker
from rewardpool import FunctionSample, Outcome, Pool, RewardConfig, Sample
from rewardpool._client.report import Report

POOL = "rl/fleet"
SERVICE_SECONDS = 0.05
CONCURRENCY = 32
SHARE_BEFORE = 0.2
"""Of the samples have a score when the fault begins."""


class Traffic:
    """One batch of samples through the client in its default settings, of which none may fail the others.

    Attributes:
        outcomes: What came of each sample, by index.
        ended: When that came (`time.monotonic`), by index.
        reports: Of the clients that were closed.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._config = RewardConfig(pool=POOL, concurrency=CONCURRENCY, on_failure="skip")
        self._progress = asyncio.Condition()
        self._work: asyncio.Task[None] | None = None
        self._cancelled = False
        self.outcomes: dict[int, Outcome] = {}
        self.ended: dict[int, float] = {}
        self.reports: list[Report] = []

    async def run(self) -> None:
        """Until every sample has an outcome; a client that is cancelled is followed by one for the rest."""
        while len(self.outcomes) < len(self._texts):
            self._cancelled = False
            self._work = asyncio.create_task(self._stream())
            try:
                await self._work
            except asyncio.CancelledError:
                if not self._cancelled:
                    self._work.cancel()
                    raise

    def cancel_client(self) -> None:
        """Cancel the task in which the client streams."""
        if self._work is not None:
            self._cancelled = True
            self._work.cancel()

    async def reaches(self, share: float) -> None:
        """Wait until that share of the samples has an outcome."""
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.outcomes) >= share * len(self._texts))

    def longest_after(self, moment: float) -> float:
        """Seconds from a moment to the last outcome of a sample that was sent before it."""
        waited = [
            ended - moment
            for index, ended in self.ended.items()
            if ended - self.outcomes[index].seconds < moment < ended
        ]
        return max(waited, default=0.0)

    async def _stream(self) -> None:
        left = [index for index in range(len(self._texts)) if index not in self.outcomes]
        pool = Pool(self._config)
        try:
            async with pool, aclosing(pool.stream(_sample(self._texts[index]) for index in left)) as stream:
                async for position, outcome in stream:
                    index = left[position]
                    if index in self.outcomes:
                        raise AssertionError(f"sample {index} came twice")
                    self.outcomes[index] = outcome
                    self.ended[index] = time.monotonic()
                    async with self._progress:
                        self._progress.notify_all()
        finally:
            self.reports.append(pool.report())


class Stage:
    """What a fault may break.

    Attributes:
        fleet: A router and real workers.
        stand_in: One worker more, where the fault asks for it.
        traffic: The samples under way.
        outage_seconds: How long an outage of everything lasts.
        first_answer: When the router could answer again, where a fault asks for that.
    """

    def __init__(
        self, fleet: Fleet, stand_in: StandInWorker | None, traffic: Traffic, *, state: Path, outage_seconds: float
    ) -> None:
        self.fleet = fleet
        self.stand_in = stand_in
        self.traffic = traffic
        self.outage_seconds = outage_seconds
        self.first_answer = FirstAnswer(fleet)
        self._told_at = 0.0
        self._state = state

    def tell_address(self) -> None:
        """Write where the router is to the place where clients look."""
        self.fleet.write_state(self._state)
        self._told_at = time.monotonic()

    def seconds_after_first_answer(self) -> float | None:
        """How long samples that waited for the router went on to wait after it could answer where clients look."""
        answered_at = self.first_answer.at
        return None if answered_at is None else self.traffic.longest_after(max(answered_at, self._told_at))

    async def play(self, fault: Callable[[Self], Awaitable[str]]) -> tuple[str, float]:
        """Run the traffic with the fault in its midst; returns the fault's notes and the seconds of all."""
        began = time.monotonic()
        running = asyncio.create_task(self.traffic.run())

        async def strike() -> str:
            await self.traffic.reaches(SHARE_BEFORE)
            return await fault(self)

        struck = asyncio.create_task(strike())
        try:
            notes, _ = await asyncio.gather(struck, running)
        finally:
            for task in (struck, running):
                task.cancel()
            await asyncio.gather(struck, running, return_exceptions=True)
        return notes, time.monotonic() - began


def _sample(text: str) -> Sample:
    return Sample(
        function=FunctionSample(
            data_source="faults", solution_str=text, ground_truth="", extra_info={"seconds": SERVICE_SECONDS}
        )
    )
