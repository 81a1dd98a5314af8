"""Probes of workers: whether one scores by now and why not, its score of the probe text, and its model.

While the pool's first score is due, workers are asked ten times a second for as long as a small engine takes to start.
The kubelet's startup probe asks every two seconds, and its result comes by way of the API server: this is only earlier.
Later, and while another replica serves, they are asked now and then, for the reason that a kubelet does not pass on.

One that answers is asked once: every worker of a discriminative model, for its score (see `decide/agreement.py`), and
of a function, for what its sandbox lacks; of a judge one worker of each revision, which speaks for all. The answer
comes with a real score, so it may take long under load, and a thousand pools whose operator starts anew are a thousand
scores: some are asked at a time.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rewardpool_api import RewardPool
from rewardpool_control.snapshot import Worker
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.probe import ProbeResult, probe_score

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1
# A start that takes longer than this is not noticeably longer by the kubelet's two seconds.
LONGEST_SECONDS: Final = 20.0
RETRY_SECONDS: Final = 10.0
MAX_ASKED: Final = 4

Start = tuple[str, str, str]
"""A worker's name, the id of its container and its address."""


class Probes:
    """Those of one pool's workers."""

    def __init__(self, polling: Polling) -> None:
        self._polling = polling
        self._answers: dict[Start, ProbeResult] = {}
        self._refusals: dict[Start, ProbeResult] = {}
        self._models: dict[str, ProbeResult] = {}
        self._asking: dict[tuple[Start, bool], asyncio.Task[None]] = {}
        """By start, and whether the kubelet says that it answers."""

    def observe(self, pool: RewardPool, workers: Sequence[tuple[Worker, str]], *, key: str | None) -> list[Worker]:
        """Return the workers with what was heard of them, and begin to ask those of which something is not known.

        Beside each worker is the id of its container.
        """
        starts = {(one.name, container, one.url): one for one, container in workers if one.running and one.url}
        revisions = {one.revision for one, _ in workers}
        self._answers = {start: answer for start, answer in self._answers.items() if start in starts}
        self._refusals = {start: refusal for start, refusal in self._refusals.items() if start in starts}
        self._models = {name: answer for name, answer in self._models.items() if name in revisions}
        awaited = pool.status.first_score is not None and pool.status.first_score.waits_for is not None
        wanted = [(start, one.answering) for start, one in self._unknown(pool, starts).items()]
        # One question to each that answers; those that start may take all places for minutes.
        wanted.sort(key=lambda asked: not asked[1])
        for asked in self._asking.keys() - set(wanted):
            self._asking.pop(asked).cancel()
        for start, answering in wanted[:MAX_ASKED]:
            asking = self._asking.get((start, answering))
            # One that is over and did not answer ended by a defect.
            if asking is None or asking.done():
                quick = awaited and not answering
                task = self._request(start, starts[start], pool, key, quick=quick)
                self._asking[start, answering] = asyncio.create_task(task)
        return [self._heard(one, (one.name, container, one.url)) if one.url else one for one, container in workers]

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()

    def _unknown(self, pool: RewardPool, starts: dict[Start, Worker]) -> dict[Start, Worker]:
        found = {start: one for start, one in starts.items() if one.active and start not in self._answers}
        if pool.spec.model.type != "Generative":
            return found
        first = {one.revision: start for start, one in reversed(found.items()) if one.answering}
        speakers = {start for revision, start in first.items() if revision not in self._models}
        return {start: one for start, one in found.items() if not one.answering or start in speakers}

    def _heard(self, worker: Worker, start: Start) -> Worker:
        answer = self._answers.get(start)
        if answer is None and not worker.answering:
            refusal = self._refusals.get(start)
            if refusal is None:
                return worker
            return replace(worker, no_score=refusal.error, failure=worker.failure or refusal.failure)
        worker = replace(worker, answering=True)
        if answer is not None:
            worker = replace(
                worker,
                probe_score=answer.probe_score,
                unsandboxed=answer.unsandboxed,
                certificate=answer.certificate,
            )
        model = self._models.get(worker.revision)
        return replace(worker, max_model_len=model.max_model_len, tokenizer=model.tokenizer) if model else worker

    async def _request(self, start: Start, worker: Worker, pool: RewardPool, key: str | None, *, quick: bool) -> None:
        session, clock = self._polling.session, self._polling.clock
        served_name, model_type = pool.served_name, pool.spec.model.type
        until = clock() + (LONGEST_SECONDS if quick else 0.0)
        at_once = worker.answering
        while True:
            if clock() >= until and not at_once:
                await asyncio.sleep(RETRY_SECONDS)
            async with self._polling.limit:
                answer = await probe_score(session, start[2], key=key, served_name=served_name, model_type=model_type)
            at_once = False
            if answer.ok:
                self._answers[start] = answer
                self._models.setdefault(worker.revision, answer)
                self._refusals.pop(start, None)
                self._polling.news()
                return
            if worker.answering:
                log.info("%s does not say how long a sample may be: %s", start[2], answer.error)
            elif answer.reached and answer.error:
                is_first = start not in self._refusals
                self._refusals[start] = answer
                if is_first:
                    self._polling.news()
            if clock() < until:
                await asyncio.sleep(PAUSE_SECONDS)
