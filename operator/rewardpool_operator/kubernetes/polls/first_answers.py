"""Whether a worker that starts scores by now, and why not.

While the pool's first score is due, workers are asked ten times a second for as long as a small engine takes to start.
The kubelet's startup probe asks every two seconds, and its result comes by way of the API server: this is only earlier.
Later, and while another replica serves, they are asked now and then, for the reason that a kubelet does not pass on.

A worker of a discriminative model that answers is asked once, for its score of the probe text: see
`decide/agreement.py`.
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
        self._scores: dict[Start, float | None] = {}
        """Of the probe text; None of a worker that gives none."""
        self._asking: dict[tuple[Start, bool], asyncio.Task[None]] = {}
        """By start, and whether the kubelet says that it answers."""
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
        self._scores = {start: score for start, score in self._scores.items() if start in starts}
        compared = pool.spec.model.type == "Discriminative"
        wanted = [
            (start, one.answering)
            for start, one in starts.items()
            if one.active and (start not in self._scores and compared if one.answering else start not in self._answered)
        ]
        # One question to each that answers; those that start may take all places for minutes.
        wanted.sort(key=lambda asked: not asked[1])
        for asked in self._asking.keys() - set(wanted):
            self._asking.pop(asked).cancel()
        for start, answering in wanted[:MAX_ASKED]:
            if (start, answering) not in self._asking:
                task = self._ask(start, pool, key, answering=answering, quick=awaited and not answering)
                self._asking[start, answering] = asyncio.create_task(task)
        return [self._heard(one, (one.name, container, one.url)) if one.url else one for one, container in workers]

    def _heard(self, worker: Worker, start: Start) -> Worker:
        if worker.answering or start in self._answered:
            return replace(worker, answering=True, probe_score=self._scores.get(start))
        return replace(worker, no_score=self._reasons.get(start))

    def close(self) -> None:
        """Stop asking."""
        for task in self._asking.values():
            task.cancel()

    async def _ask(self, start: Start, pool: RewardPool, key: str | None, *, answering: bool, quick: bool) -> None:
        _, _, url = start
        served_name, model_type = pool.served_name, pool.spec.model.type
        until = self._clock() + (LONGEST_SECONDS if quick else 0.0)
        at_once = answering
        while True:
            if self._clock() >= until and not at_once:
                await asyncio.sleep(REASON_PAUSE_SECONDS)
            async with self._poll_limit:
                result = await probe_score(self._session, url, key=key, served_name=served_name, model_type=model_type)
            at_once = False
            if result.ok:
                self._scores[start] = result.probe_score
                if not answering:
                    self._answered.add(start)
                self._reasons.pop(start, None)
                self._news()
                return
            if result.reached and result.error and not answering:
                is_first = start not in self._reasons
                self._reasons[start] = result.error
                if is_first:
                    self._news()
            if self._clock() < until:
                await asyncio.sleep(PAUSE_SECONDS)
