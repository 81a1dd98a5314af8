"""How long a sample may be and which tokenizer the model has: one worker of each revision is asked once.

That is in the background. The answer comes with a real score, so it may take long under load; and a thousand pools
whose operator starts anew are a thousand scores. So some are asked at a time, of all pools together, and a worker that
does not say is not asked again soon.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

import aiohttp

from rewardpool_api import RewardPool
from rewardpool_operator.probe import ProbeResult, probe_score
from rewardpool_operator.snapshot import Worker

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 60.0


class MaxModelLens:
    """The longest sample and the tokenizer of every revision of one pool.

    Args:
        session: carries the calls.
        news: called when an answer has come.
        poll_limit: bounds the background polls at a time, of all pools together.
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
        self._known: dict[str, ProbeResult] = {}
        self._not_before: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def described(self, worker: Worker) -> Worker:
        """Return the worker with what is known of its revision; without, while it does not answer."""
        known = self._known.get(worker.revision) if worker.answering else None
        return replace(worker, max_model_len=known.max_model_len, tokenizer=known.tokenizer) if known else worker

    def ask(self, pool: RewardPool, workers: Sequence[Worker], *, key: str | None) -> None:
        """Begin to ask a worker of every revision of which it is not known."""
        there = {worker.revision for worker in workers}
        for gone in [revision for revision in self._known if revision not in there]:
            del self._known[gone]
        for worker in workers:
            unknown = worker.revision not in self._known and worker.revision not in self._asking
            if unknown and worker.answering and worker.url and self._is_time(worker.revision):
                asking = self._ask(worker.revision, worker.url, pool, key)
                self._asking[worker.revision] = asyncio.create_task(asking)

    def close(self) -> None:
        """Stop asking."""
        for task in self._asking.values():
            task.cancel()

    def _is_time(self, revision: str) -> bool:
        return self._clock() >= self._not_before.get(revision, 0.0)

    async def _ask(self, revision: str, url: str, pool: RewardPool, key: str | None) -> None:
        model_type = pool.spec.model.type
        try:
            async with self._poll_limit:
                result = await probe_score(
                    self._session, url, key=key, served_name=pool.served_name, model_type=model_type
                )
        finally:
            del self._asking[revision]
        if result.ok:
            self._known[revision] = result
            self._not_before.pop(revision, None)
            self._news()
        else:
            self._not_before[revision] = self._clock() + RETRY_SECONDS
            log.info("%s does not say how long a sample may be: %s", url, result.error)
