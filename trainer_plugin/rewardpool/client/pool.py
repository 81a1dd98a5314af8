"""The client: samples go in one by one, scores come out as they are ready, and no sample is lost on the way.

    stream: samples are read as there is room -> each is tried -> the failure policy -> outcomes as they complete

How one sample is tried until it has a score is `caller.py`.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from rewardpool.client.answer import read_judgement, read_object, read_score
from rewardpool.client.batching import Batcher
from rewardpool.client.caller import Caller, Effort
from rewardpool.client.report import Ledger, Report
from rewardpool.config import Constant, RewardConfig
from rewardpool.demand.cadence import Plan
from rewardpool.demand.handle import JobDemand, announced_demand
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import InvalidSampleError, SampleError, SampleTooLongError
from rewardpool.sample import Outcome, Sample, Scored, Unscored
from rewardpool_api.contract import CHAT_PATH, SCORE_PATH

log = logging.getLogger(__name__)

T = TypeVar("T")


class Pool:
    """A connection to a reward pool; an async context manager.

    Entering it finds the pool and raises what `discover` raises. One instance serves any number of tasks of one event
    loop; `BlockingPool` is for everything else.
    """

    def __init__(self, config: RewardConfig, **injected: Any) -> None:
        """Prepare a client; `injected` is what `Caller` takes to be tested without a clock or a network."""
        self._config = config
        self._ledger = Ledger()
        self._caller = Caller(config, self._ledger, **injected)
        self._batcher = Batcher(self._caller, most=config.batch) if config.batch > 1 else None
        self._unnamed = itertools.count()
        self._demand = JobDemand.silent("the trainer has not asked for it")

    async def __aenter__(self) -> Self:
        await self._caller.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._demand.end)
        await self._caller.close()

    @property
    def endpoint(self) -> Endpoint:
        """Where the pool is now, and what it serves."""
        return self._caller.endpoint

    def report(self) -> Report:
        """Counts and latencies since the pool was entered."""
        return replace(self._ledger.report(), concurrency=self._caller.concurrency, demand=self._demand.report())

    @property
    def job_demand(self) -> JobDemand:
        """What `demand` returned last; before that, one that announces nothing."""
        return self._demand

    def demand(
        self,
        *,
        samples: int | None = None,
        steps: int | None = None,
        every_seconds: float | None = None,
        rank: int | None = None,
        ranks: int | None = None,
    ) -> JobDemand:
        """Announce to the pool what this job is going to ask, from now on until it ends.

        What is not given is learned from the calls to `JobDemand.rollout` and `update`, and from the samples.

        Args:
            samples: Samples of one rollout, over all ranks.
            steps: Rollouts until the job is over.
            every_seconds: From the beginning of one rollout to that of the next.
            rank: Number of this process; only 0 announces. Default: $RANK, else 0.
            ranks: Processes of the job that send samples; with more than one, this one's are not counted for the whole.
                Default: $WORLD_SIZE, else 1.

        Raises:
            ConfigError: $REWARDPOOL_JOB, $REWARDPOOL_ANNOUNCE, $RANK or $WORLD_SIZE is wrong.
            ValueError: A figure is out of range.
            RuntimeError: The pool was not entered, or a demand is announced already.
        """
        if self._demand.is_announcing:
            raise RuntimeError("this pool's demand is announced already; end that one first")
        plan = Plan(samples=samples, steps=steps, every_seconds=every_seconds)
        self._demand = announced_demand(self._config, lambda: self.endpoint, plan, rank=rank, ranks=ranks)
        return self._demand

    async def score(self, sample: Sample) -> float:
        """The raw score of one sample.

        There is no outcome to say "unscored" with, so it raises under every failure policy.

        Raises:
            SampleError: The sample has no score.
            PoolError: The pool cannot be used.
        """
        outcome = await self._try(sample, self._label(sample))
        if isinstance(outcome, Unscored):
            self._ledger.unscored += 1
            raise outcome.error
        return outcome.value

    async def outcome(self, sample: Sample) -> Outcome:
        """What becomes of one sample under the config's failure policy.

        Raises:
            SampleError: The sample has no score and the policy is `raise`.
            PoolError: The pool cannot be used, whatever the policy.
        """
        return self._apply_policy(await self._try(sample, self._label(sample)))

    async def judge(self, messages: Sequence[Mapping[str, Any]], *, label: str | None = None, **sampling: Any) -> str:
        """What a Generative pool writes about a conversation.

        Args:
            messages: The conversation, as `[{"role": ..., "content": ...}, ...]`.
            label: Names the request in messages.
            sampling: Further fields of a chat completion request, such as `max_tokens` and `temperature`.

        Raises:
            SampleError: No text came back.
            PoolError: The pool cannot be used.
        """
        effort = Effort(label or f"judge-{next(self._unnamed)}")
        self._demand.sample_comes()

        def body(endpoint: Endpoint) -> dict[str, Any]:
            if endpoint.model_type not in (None, "Generative"):
                raise InvalidSampleError(effort.label, f"{endpoint.pool} is {endpoint.model_type}, which cannot judge")
            return {**sampling, "model": endpoint.served_name, "messages": list(messages)}

        try:
            text = await self._caller.ask(effort, CHAT_PATH, body, read_judgement)
        except SampleError:
            self._ledger.unscored += 1
            raise
        self._ledger.score(effort.seconds)
        return text

    async def post(self, path: str, content: Mapping[str, Any], *, label: str | None = None) -> dict[str, Any]:
        """The JSON object that answers a request of any kind; for code that writes its requests itself.

        Args:
            path: Of the request, such as `/v1/chat/completions`.
            content: The request; its `model` becomes the name by which the pool serves its model.
            label: Names the request in messages.

        Raises:
            SampleError: There is no answer.
            PoolError: The pool cannot be used.
        """
        effort = Effort(label or f"request-{next(self._unnamed)}")
        self._demand.sample_comes()

        def body(endpoint: Endpoint) -> dict[str, Any]:
            return {**content, "model": endpoint.served_name}

        try:
            answer = await self._caller.ask(effort, path, body, read_object)
        except SampleError:
            self._ledger.unscored += 1
            raise
        self._ledger.score(effort.seconds)
        return answer

    async def stream(
        self, samples: Iterable[Sample] | AsyncIterable[Sample]
    ) -> AsyncGenerator[tuple[int, Outcome], None]:
        """Score samples as they arrive and yield `(index, outcome)` as they complete; every index comes exactly once.

        Input is read only while there is room: at most twice `concurrency` times `batch` samples are started and not
        yet taken. An async iterable may take its time (a rollout); a plain one is read on the event loop, so it should
        not block.

        A failed sample under `skip` or a constant is an outcome like any other, and the rest go on. Under `raise`, the
        first failure ends the stream: what is in flight is cancelled, then the error is raised. Leaving the loop early
        cancels what is in flight as well; wrap the stream in `contextlib.aclosing` to have that happen at once.

        Raises:
            SampleError: A sample has no score and the policy is `raise`.
            PoolError: The pool cannot be used, whatever the policy.
        """
        window = asyncio.Semaphore(self._config.ahead)
        done: asyncio.Queue[tuple[int, Outcome | BaseException] | None] = asyncio.Queue()
        pump = asyncio.create_task(self._pump(samples, window, done))
        try:
            while (item := await self._next(done)) is not None:
                index, outcome = item
                window.release()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield index, outcome
            await pump  # an input that raised does so here
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _next(self, done: asyncio.Queue[T]) -> T:
        """The next of a stream; while its input is over, or waits to be read, that is all the trainer does."""
        if not done.empty():
            return done.get_nowait()
        began = time.monotonic()
        with self._demand.waiting():
            item = await done.get()
        self.waited(time.monotonic() - began)
        return item

    def waited(self, seconds: float) -> None:
        """Count seconds in which whoever reads a stream of this pool had nothing to take."""
        self._ledger.exposed_seconds += seconds

    async def _pump(
        self,
        samples: Iterable[Sample] | AsyncIterable[Sample],
        window: asyncio.Semaphore,
        done: asyncio.Queue[tuple[int, Outcome | BaseException] | None],
    ) -> None:
        """Start a task per sample while there is room; ends with None in the queue when all have ended."""
        running: set[asyncio.Task[None]] = set()

        async def deliver(index: int, sample: Sample) -> None:
            try:
                outcome = await self._try(sample, sample.id or f"#{index}")
                done.put_nowait((index, self._apply_policy(outcome)))
            except Exception as error:  # handed over, and raised by the stream
                done.put_nowait((index, error))

        try:
            # An async input goes on by itself while the trainer waits; reading a plain one is all the trainer does.
            feeding = self._demand.feeding() if isinstance(samples, AsyncIterable) else nullcontext()
            async with aclosing(_as_async(samples)) as source:
                with feeding:
                    for index in itertools.count():
                        await self._room(window)
                        try:
                            sample = await anext(source)
                        except StopAsyncIteration:
                            break
                        task = asyncio.create_task(deliver(index, sample))
                        running.add(task)
                        task.add_done_callback(running.discard)
            await asyncio.gather(*running)
        finally:
            await _cancelled(running)
            done.put_nowait(None)

    async def _room(self, window: asyncio.Semaphore) -> None:
        """Wait until another sample may be read."""
        if not window.locked():
            await window.acquire()
            return
        with self._demand.holding_back():
            await window.acquire()

    def _label(self, sample: Sample) -> str:
        return sample.id or f"#{next(self._unnamed)}"

    def _apply_policy(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Scored):
            return outcome
        policy = self._config.on_failure
        if isinstance(policy, Constant):
            self._ledger.constants += 1
            log.warning("%s; it scores the constant %g, as configured", outcome.error, policy.constant)
            return Scored(value=policy.constant, attempts=outcome.attempts, seconds=outcome.seconds, constant=True)
        self._ledger.unscored += 1
        if policy == "raise":
            raise outcome.error
        return outcome

    async def _try(self, sample: Sample, label: str) -> Outcome:
        """Score one sample; the failure policy is still to be applied. Raises PoolError."""
        effort = Effort(label)
        self._demand.sample_comes()

        def body(endpoint: Endpoint) -> dict[str, Any]:
            return _body(endpoint, sample, label)

        try:
            if self._batcher is None:
                value = await self._caller.ask(effort, SCORE_PATH, body, read_score)
            else:
                value = await self._batcher.score(effort, body)
        except SampleError as error:
            return Unscored(error=error, attempts=effort.attempts, seconds=effort.seconds)
        self._ledger.score(effort.seconds)
        return Scored(value=value, attempts=effort.attempts, seconds=effort.seconds)


def _body(endpoint: Endpoint, sample: Sample, label: str) -> dict[str, Any]:
    """The request for one sample. Raises SampleError where the pool's model cannot take it."""
    if endpoint.model_type == "Generative":
        raise InvalidSampleError(label, f"{endpoint.pool} is Generative, which writes instead of scoring; use judge")
    if endpoint.model_type is not None and (endpoint.model_type == "Function") != (sample.function is not None):
        wanted = "function" if endpoint.model_type == "Function" else "text or token_ids"
        raise InvalidSampleError(label, f"{endpoint.pool} is {endpoint.model_type} and takes {wanted}")
    limit = endpoint.max_model_len
    if sample.token_ids is not None and limit is not None and len(sample.token_ids) > limit:
        raise SampleTooLongError(label, len(sample.token_ids), limit)
    return {"model": endpoint.served_name, "input": sample.to_input(label)}


async def _as_async(samples: Iterable[Sample] | AsyncIterable[Sample]) -> AsyncGenerator[Sample, None]:
    if isinstance(samples, AsyncIterable):
        async for sample in samples:
            yield sample
    else:
        for sample in samples:
            yield sample


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
