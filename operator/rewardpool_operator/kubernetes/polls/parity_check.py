"""The golden set of a pool, read from its ConfigMap, and the scores that revisions give it, kept on their Deployments.

The ConfigMap is a user's, without our label, so no watch reports it: it is read by name, now and then. Scoring is done
in the background, since a pass does not wait; its outcome is an annotation, so a restarted operator asks no worker
again, and the scores of a revision outlive its workers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_api.contract import CallerError, InvalidResponseError
from rewardpool_api.pool import GoldenSetRef
from rewardpool_control.golden_set import (
    GoldenProblem,
    GoldenScores,
    GoldenSet,
    GoldenSetError,
    GoldenText,
    parse_golden_set,
)
from rewardpool_control.plan import Measure
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.polls.reading import NO_ANSWER, Polling, Reading
from rewardpool_operator.kubernetes.queue.backoff import pause_seconds
from rewardpool_operator.probe import NoScoreError, score_text

log = logging.getLogger(__name__)

READ_SECONDS: Final = 5.0
READ_PATIENCE_SECONDS: Final = 1.0
READ_SETTLED_SECONDS: Final = 60.0
AT_A_TIME: Final = 4  # the good revision's worker serves trainers beside
MEASURE_SECONDS: Final = 900.0
ATTEMPTS: Final = 5
"""Attempts at a set whose worker fails. After the last, the texts that have no score are kept as such."""
SHORTEST_PAUSE_SECONDS: Final = 4.0
LONGEST_PAUSE_SECONDS: Final = 60.0

Golden = GoldenSet | GoldenProblem


Ask = Callable[[str], Awaitable[float | CallerError]]


class ParityCheck:
    """Golden set of one pool, and its measurements; `keep` takes a Deployment as the API server answered it."""

    def __init__(self, kube: Kube, polling: Polling, *, keep: Callable[[Object], object]) -> None:
        self._kube = kube
        self._polling = polling
        self._keep = keep
        self._reading: Reading[Golden] = Reading(polling)
        self._asked_for: tuple[GoldenSetRef | None, str] = (None, "")
        self._measuring: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}
        """Revision and digest -> failed attempts, and when the next one may be made."""

    @property
    def refused(self) -> str | None:
        """Reason for which the set could not be read the last time; None when it could, or there is none to read."""
        ref, problem = self._asked_for[0], self._reading.problem
        return None if ref is None or problem is None else f"{_named(ref)} cannot be read: {problem}"

    async def golden(self, pool: RewardPool, *, revision: str) -> Golden | None:
        """The golden set as last read, or why there is none; None when the pool asks for no comparison.

        While the API server is away or refuses, what was read before holds.
        """
        parity = pool.spec.rollout.parity
        ref = None if parity is None else parity.golden_set_ref
        if ref != self._asked_for[0]:
            self._reading.close()
            self._reading, self._asked_for = Reading(self._polling), (ref, "")
        if ref is None:
            return None
        rollout = pool.status.rollout
        settled = rollout is not None and rollout.stable_revision == revision
        fresh_for = READ_SETTLED_SECONDS if settled else READ_SECONDS
        # A new revision is compared with the set of its own time.
        is_old = self._polling.clock() - self._reading.asked_at >= fresh_for or self._asked_for != (ref, revision)
        if self._reading.pending or is_old:
            if not self._reading.pending:
                self._asked_for = (ref, revision)
            question = partial(read_golden_set, self._kube, pool.metadata.namespace, ref)
            await self._reading.poll(question, patience=READ_PATIENCE_SECONDS)
        unread = self.refused or f"{_named(ref)} cannot be read: the API server has not answered yet"
        return self._reading.last or GoldenProblem(message=unread)

    def measure(self, pool: RewardPool, golden: Golden | None, wanted: Iterable[Measure], *, key: str | None) -> None:
        """Begin what is to be measured and is neither under way nor pausing after a failure."""
        if not isinstance(golden, GoldenSet):
            return
        for measure in wanted:
            name = (measure.revision, golden.digest)
            failed, not_before = self._failures.get(name, (0, 0.0))
            if name in self._measuring or self._polling.clock() < not_before:
                continue
            ask = partial(score_text, self._polling.session, measure.worker_url, key, pool.served_name)
            last = failed + 1 >= ATTEMPTS
            task = asyncio.create_task(self._measure(pool, measure.revision, golden, ask, last=last))
            self._measuring[name] = task

    def close(self) -> None:
        self._reading.close()
        for task in self._measuring.values():
            task.cancel()

    async def _measure(self, pool: RewardPool, revision: str, golden: GoldenSet, ask: Ask, *, last: bool) -> None:
        name = (revision, golden.digest)
        try:
            async with self._polling.limit, asyncio.timeout(MEASURE_SECONDS):
                scores = await score_golden_set(golden, ask, give_up=last)
            await self._write(pool, revision, scores)
        except (NoScoreError, *NO_ANSWER) as error:
            failed = self._failures.get(name, (0, 0.0))[0] + 1
            pause = pause_seconds(failed, shortest=SHORTEST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
            self._failures[name] = (failed, self._polling.clock() + pause)
            words = str(error) or "not all texts were scored in time"
            log.warning("the golden set could not be scored by revision %s: %s", revision, words)
        else:
            self._failures.pop(name, None)
            log.info("revision %s has scored the %d golden texts", revision, len(golden.texts))
        finally:
            del self._measuring[name]
            self._polling.news()

    async def _write(self, pool: RewardPool, revision: str, scores: GoldenScores) -> None:
        patch = {"metadata": {"annotations": {names.ANNOTATION_GOLDEN_SCORES: scores.to_annotation()}}}
        deployment = names.worker_name(pool.metadata.name, revision)
        self._keep(await self._kube.merge(resources.DEPLOYMENTS, pool.metadata.namespace, deployment, patch))


async def read_golden_set(kube: Kube, namespace: str, ref: GoldenSetRef) -> Golden:
    """Read the ConfigMap; a set that is missing or malformed is an outcome, no error."""
    config_map = await kube.get(resources.CONFIG_MAPS, namespace, ref.name)
    if config_map is None:
        return GoldenProblem(message=f"{_named(ref)} is not there: there is no such ConfigMap in {namespace}")
    content = (config_map.get("data") or {}).get(ref.key)
    if content is None:
        there = ", ".join(sorted(config_map.get("data") or {})) or "none"
        return GoldenProblem(message=f"{_named(ref)} is not there; the ConfigMap's entries: {there}")
    try:
        return parse_golden_set(content)
    except GoldenSetError as error:
        return GoldenProblem(message=f"{_named(ref)}: {error}")


async def score_golden_set(golden: GoldenSet, ask: Ask, *, give_up: bool) -> GoldenScores:
    """Score all texts by a worker, some at a time.

    A text that gets no answer is kept as one without a score, when it is given up.

    Raises:
        NoScoreError: a text got no answer, and it is not given up.
    """
    slots = asyncio.Semaphore(AT_A_TIME)

    async def one(item: GoldenText) -> float | str:
        async with slots:
            return await _score(item, ask, give_up=give_up)

    outcomes = await _all(one(item) for item in golden.texts)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, str)]
    return GoldenScores(
        digest=golden.digest,
        scores=tuple(None if isinstance(outcome, str) else outcome for outcome in outcomes),
        refusal=refusals[0][:300] if refusals else None,
    )


async def _all(asked: Iterable[Awaitable[float | str]]) -> list[float | str]:
    """The outcomes in order; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _score(item: GoldenText, ask: Ask, *, give_up: bool) -> float | str:
    try:
        answer = await ask(item.text)
    except InvalidResponseError as error:
        return str(error)
    except NoScoreError as error:
        if not give_up:
            raise NoScoreError(f"line {item.line}: {error}") from None
        return str(error)
    return f"{answer.code}: {answer.message}" if isinstance(answer, CallerError) else answer


def _named(ref: GoldenSetRef) -> str:
    return f"entry {ref.key} of ConfigMap {ref.name} (spec.rollout.parity.goldenSetRef)"
