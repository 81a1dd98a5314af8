"""Whether a worker that starts scores by now, and why not.

While the pool's first score is due, workers are asked ten times a second for as long as a small engine takes to start.
The kubelet's startup probe asks every two seconds, and its result comes by way of the API server: this is only earlier.
Later, and while another replica serves, they are asked now and then, for the reason that a kubelet does not pass on.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

import aiohttp

from rewardpool_api import RewardPool
from rewardpool_operator.probe import probe_score
from rewardpool_operator.snapshot import Worker

PAUSE_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 20.0
"""Of asking so often; what takes longer is not made noticeably longer by the kubelet's two seconds."""
REASON_PAUSE_SECONDS: Final = 10.0
"""Before each question from then on."""
MAX_ASKED: Final = 4
"""Workers of one pool."""

Start = tuple[str, str, str]
"""A worker's name, the id of its container and its address."""


class FirstAnswers:
    """Those of one pool's workers.

    Args:
        session: carries the calls.
        news: called when one answers.
        poll_limit: bounds the questions at a time, of all pools together.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        news: Callable[[], None],
        poll_limit: asyncio.Semaphore,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._session = session
        self._news = news
        self._poll_limit = poll_limit
        self._clock = clock
        self._answered: set[Start] = set()
        self._asking: dict[Start, asyncio.Task[None]] = {}
        self._reasons: dict[Start, str] = {}

    def look(self, pool: RewardPool, workers: Sequence[tuple[Worker, str]], *, key: str | None) -> list[Worker]:
        """Return the workers with what was heard of them, and begin to ask those that do not answer yet.

        Args:
            pool: whose.
            workers: each with the id of its container.
            key: the pool's key; None when it has none.
        """
        starts = {(one.name, container, one.url): one for one, container in workers if one.running and one.url}
        self._answered &= starts.keys()
        awaited = pool.status.first_score is not None and pool.status.first_score.waits_for is not None
        self._reasons = {start: reason for start, reason in self._reasons.items() if start in starts}
        wanted = [start for start, one in starts.items() if not one.answering and one.active]
        for start in self._asking.keys() - set(wanted):
            self._asking.pop(start).cancel()
        for start in wanted[:MAX_ASKED]:
            if start not in self._asking and start not in self._answered:
                self._asking[start] = asyncio.create_task(self._ask(start, pool, key, quick=awaited))
        return [
            one if one.answering or not one.url else self._heard(one, (one.name, container, one.url))
            for one, container in workers
        ]

    def _heard(self, worker: Worker, start: Start) -> Worker:
        if start in self._answered:
            return replace(worker, answering=True)
        return replace(worker, no_score=self._reasons.get(start))

    def close(self) -> None:
        """Stop asking."""
        for task in self._asking.values():
            task.cancel()

    async def _ask(self, start: Start, pool: RewardPool, key: str | None, *, quick: bool) -> None:
        _, _, url = start
        served_name, model_type = pool.served_name, pool.spec.model.type
        until = self._clock() + (LONGEST_SECONDS if quick else 0.0)
        while True:
            if self._clock() >= until:
                await asyncio.sleep(REASON_PAUSE_SECONDS)
            async with self._poll_limit:
                result = await probe_score(self._session, url, key=key, served_name=served_name, model_type=model_type)
            if result.ok:
                self._answered.add(start)
                self._reasons.pop(start, None)
                self._news()
                return
            if result.reached and result.error:
                is_first = start not in self._reasons
                self._reasons[start] = result.error
                if is_first:
                    self._news()
            if self._clock() < until:
                await asyncio.sleep(PAUSE_SECONDS)
