"""The client: samples go in one by one, scores come out as they are ready, and no sample is lost on the way.

How one sample is tried until it has a score is `request.py`, how many of them go at once `stream.py`.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from rewardpool._client.answer import Judgement, check_echo, read_first_token, read_judgement, read_object
from rewardpool._client.answering import Answering, current
from rewardpool._client.batching import Batcher
from rewardpool._client.logprobs_request import LogprobsRequest, slots_of
from rewardpool._client.report import Counters, Report
from rewardpool._client.request import ScoreRequest
from rewardpool._client.rules.breaker import NOTHING_PROVEN, Settled
from rewardpool._client.sample_request import SampleRequest
from rewardpool._client.stream import Stream
from rewardpool._client.threads.loop_thread import Work
from rewardpool._client.threads.shared import shared
from rewardpool._client.transport import Connections
from rewardpool._client.wake_lock import WITHIN_SECONDS, Awake, sleeping_folder
from rewardpool._config import Penalty, RewardConfig, action_for
from rewardpool._demand.cadence import GivenCadence
from rewardpool._demand.handle import JobDemand, announced_demand
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._logprobs import Logprobs
from rewardpool._sample import Outcome, Sample, Scored, Unscored
from rewardpool._score_waits import ScoreWaits
from rewardpool.errors import InvalidSampleError, PoolError, SampleError, WrongTokenizerError
from rewardpool_api.contract import CHAT_PATH, SCORE_PATH, AnsweringWorker, Signature
from rewardpool_api.teacher_wire import LOGPROBS_PATH, BadRequestError, SequenceQuestion, check_question, question

log = logging.getLogger(__name__)

T = TypeVar("T")

# Generations that one question to a judge may cost, over all layers.
MAX_GENERATIONS = 3


WITHOUT_SCORES: Final = frozenset({"Generative", "Teacher"})


class Pool:
    """A connection to a reward pool; an async context manager.

    Entering it finds the pool and raises what `discover` raises. One instance serves any number of tasks of one event
    loop; `BlockingPool` is for everything else.
    """

    def __init__(self, pool: str | Mapping[str, Any] | RewardConfig) -> None:
        """Prepare a client.

        Args:
            pool: `namespace/name`, a router's URL, or how it is found and asked.

        Raises:
            ConfigError: It is none of these.
        """
        self._config = config = RewardConfig.of(pool)
        self._opening: Callable[[], AbstractAsyncContextManager[Connections]] = lambda: Connections(config)
        self._open: AbstractAsyncContextManager[Connections] | None = None
        self._connections: Connections | None = None
        self._batcher: Batcher | None = None
        self._counters = Counters()
        self._unnamed = itertools.count()
        self._demand = JobDemand.silent("the trainer has not asked for it")
        self._awake = Awake()

    @classmethod
    def shared(cls, pool: str | Mapping[str, Any] | RewardConfig) -> Self:
        """A client that shares with all others of the same config on the same event loop what is open.

        These are connections, the pace, what is known of stragglers, and where the pool is; `concurrency` is for all of
        them together. The last one that is left closes them. Counts and demand are each one's own, but `rediscoveries`.
        """
        client = cls(pool)
        config = client._config
        client._opening = lambda: shared().lease(config, lambda: Connections(config))
        return client

    async def __aenter__(self) -> Self:
        self._open = self._opening()
        self._connections = await self._open.__aenter__()
        if self._config.batch != 1:
            most = None if self._config.batch == "auto" else self._config.batch
            self._batcher = Batcher(self._connections, self._counters, most=most)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await asyncio.to_thread(self._demand.end)
        finally:  # also when it is cancelled meanwhile
            if self._open is not None:
                await self._open.__aexit__(kind, error, trace)

    @property
    def endpoint(self) -> Endpoint:
        """The present address of the pool, and its model."""
        return self._entered.endpoint

    @property
    def _entered(self) -> Connections:
        if self._connections is None:
            raise RuntimeError("enter the pool first: async with Pool(config) as pool")
        return self._connections

    def report(self) -> Report:
        """Counts and latencies since the pool was entered."""
        counts = replace(self._counters.report(), demand=self._demand.report())
        if self._connections is None:
            return counts
        return replace(
            counts,
            concurrency=self._connections.concurrency,
            rediscoveries=self._connections.resolver.rediscoveries,
        )

    @property
    def job_demand(self) -> JobDemand:
        """The demand that `demand` returned last; before that, one that announces nothing."""
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
        plan, before = GivenCadence(samples=samples, steps=steps, every_seconds=every_seconds), self._counters.scored
        self._demand = announced_demand(
            self._config,
            lambda: self.endpoint,
            plan,
            rank=rank,
            ranks=ranks,
            samples_per_request=lambda: self._counters.samples_per_request,
            tokens_per_sample=lambda: self._counters.tokens_per_sample,
            score_wait=self._score_wait,
            scores=lambda: None if self.endpoint.model_type in WITHOUT_SCORES else self._counters.job_scores(),
            scored=lambda: self._counters.scored - before,
        )
        return self._demand

    def awake(self, *, within_seconds: float = WITHIN_SECONDS) -> AbstractAsyncContextManager[None]:
        """Within this block the engines of a pool that shares the trainer's GPUs are awake.

        Entering it wakes them and returns once samples are scored. The last block of the last process that holds the
        pool puts them to sleep, and leaving it returns once they have given the GPUs back. Blocks may overlap. For a
        pool without `spec.engine.sleep.enabled` the block does nothing.

        Args:
            within_seconds: For each, waking and sleeping.

        Raises:
            PoolNotReadyError: On entering, the engines did not wake in time; on leaving, they did not sleep in time, or
                another process still holds the pool awake.
            ConfigError: The pool is in a cluster, where engines are not woken, or only its URL is known.
            PoolAccessError: The pool's folder on this machine cannot be written.
        """
        return self._awake.hold(self.endpoint, within_seconds=within_seconds)

    async def sleeping_folder(self) -> Path | None:
        """The folder on this machine of a pool that sleeps unless it is kept awake; None for any other pool.

        Raises:
            PoolError: The pool cannot be read.
        """
        return await sleeping_folder(self.endpoint)

    async def score(self, sample: Sample) -> float:
        """The raw score of one sample; raises what `scored` does."""
        return (await self.scored(sample)).value

    async def scored(self, sample: Sample) -> Scored:
        """Return the score of one sample, and whose it is.

        There is no outcome to say "unscored" with, so it raises under every failure policy.

        Raises:
            SampleError: The sample has no score.
            PoolError: The pool cannot be used.
        """
        outcome = await self._outcome(sample)
        if isinstance(outcome, Unscored):
            if isinstance(outcome.error, WrongTokenizerError):
                self._counters.samples -= 1  # it is written anew and asked again, which counts it
            else:
                self._counters.unscored += 1
            raise outcome.error
        return outcome

    async def look_up(self) -> None:
        """Look the pool up now: `endpoint` is then current, unless it cannot be read."""
        await self._entered.resolver.look_up()

    async def outcome(self, sample: Sample) -> Outcome:
        """Return the outcome of one sample under the config's failure policy.

        Raises:
            SampleError: The sample has no score and the policy for its fault is `raise`.
            PoolError: The pool cannot be used, whatever the policy.
        """
        outcome = await self._outcome(sample)
        failure = None
        if isinstance(outcome, Unscored) and self._gets_penalty(outcome.error):
            try:
                failure = await self._entered.breaker.settled()
            except asyncio.CancelledError:
                self._counters.cancelled += 1
                raise
        return self._apply_policy(outcome, failure)

    async def judge(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        label: str | None = None,
        max_generations: int = MAX_GENERATIONS,
        **sampling: Any,
    ) -> Judgement:
        """Return what a Generative pool writes about a conversation.

        Args:
            messages: The conversation, as `[{"role": ..., "content": ...}, ...]`.
            label: Names the request in messages.
            max_generations: Most generations that it may cost: attempts that reach a worker, hedges included.
            sampling: Further fields of a chat completion request, such as `max_tokens` and `temperature`.

        Raises:
            SampleError: No text came back.
            PoolError: The pool cannot be used.
        """
        request = self._chat(messages, read_judgement, label=label, limit=max_generations, sampling=sampling)
        judgement = await self._result(request)
        judgement.generations = request.generations
        return judgement

    async def first_token(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        label: str | None = None,
        max_generations: int = MAX_GENERATIONS,
        **sampling: Any,
    ) -> list[tuple[str, float]]:
        """Return the likeliest first tokens of a Generative pool's answer, and the logarithms of their probabilities.

        Args:
            messages: As for `judge`.
            label: Names the request in messages.
            max_generations: As for `judge`.
            sampling: Further fields of a chat completion request; `logprobs` and `top_logprobs` among them.

        Raises:
            SampleError: No probabilities came back.
            PoolError: The pool cannot be used.
        """
        return await self._result(
            self._chat(messages, read_first_token, label=label, limit=max_generations, sampling=sampling)
        )

    def _chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        read: Callable[[int, bytes, str], T],
        *,
        label: str | None,
        limit: int,
        sampling: Mapping[str, Any],
    ) -> "_Call[T]":
        label = label or f"judge-{next(self._unnamed)}"

        def content(endpoint: Endpoint) -> dict[str, Any]:
            if endpoint.model_type not in (None, "Generative"):
                raise InvalidSampleError(label, f"{endpoint.pool} is {endpoint.model_type}, which cannot judge")
            if endpoint.adapter is not None:
                raise InvalidSampleError(label, f"{endpoint.adapter} is an adapter, and those score: none can judge")
            return {**sampling, "model": endpoint.served_name, "messages": list(messages)}

        return self._call(label, CHAT_PATH, content, read, max_generations=limit)

    async def post(self, path: str, content: Mapping[str, Any], *, label: str | None = None) -> dict[str, Any]:
        """The JSON object that answers a request of any kind; for code that writes its requests itself.

        Args:
            path: Of the request, such as `/v1/chat/completions`.
            content: The request; its `model` becomes the name by which the pool serves its model, and with an adapter
                its `user` names that one.
            label: Names the request in messages.

        Raises:
            SampleError: There is no answer.
            PoolError: The pool cannot be used.
        """
        label = label or f"request-{next(self._unnamed)}"
        return await self._result(
            self._call(label, path, lambda endpoint: {**content, **endpoint.model_fields}, read_object)
        )

    def _call(
        self,
        label: str,
        path: str,
        ask: Callable[[Endpoint], dict[str, Any]],
        answer: Callable[[int, bytes, str], T],
        *,
        max_generations: int | None = None,
    ) -> "_Call[T]":
        self._demand.sample_comes()
        return _Call(
            self._entered,
            self._counters,
            label=label,
            path=path,
            max_generations=max_generations,
            ask=ask,
            answer=answer,
        )

    async def logprobs(
        self,
        token_ids: Any,
        *,
        start: int = 1,
        top_k: int = 0,
        ids: Any = None,
        label: str | None = None,
        vocabulary: str | None = None,
    ) -> Logprobs:
        """Return the log-probabilities that a Teacher gives to the tokens of a sequence.

        Args:
            token_ids: Of the whole sequence, prompt and response together; whole numbers, shape (n,).
            start: Position of the first token of interest, 1 to n - 1; such as the prompt's length.
            top_k: Most likely tokens at each position.
            ids: Further tokens at each position, which not every engine has; shape (n - start, m).
            label: Names the request in messages.
            vocabulary: Digest of the vocabulary that the token ids are of, by
                `rewardpool.vocabulary_digest`; None where any model may answer.

        Returns:
            A row for each position from `start` to n - 1, whole, or an error.

        Raises:
            SampleError: There is no answer, or the question is malformed.
            PoolError: The pool cannot be used.
        """
        label = label or f"#{next(self._unnamed)}"
        try:
            asked = question(token_ids, start=start, top_k=top_k, ids=ids)
        except BadRequestError as error:
            raise InvalidSampleError(label, str(error)) from None
        return await self.logprobs_of(asked, label=label, vocabulary=vocabulary)

    async def logprobs_of(self, asked: SequenceQuestion, *, label: str, vocabulary: str | None = None) -> Logprobs:
        """As `logprobs`, for a question that is made."""
        try:
            check_question(asked)
        except BadRequestError as error:
            raise InvalidSampleError(label, str(error)) from None
        self._demand.sample_comes(tokens=len(asked.token_ids))
        return await self._result(
            LogprobsRequest(
                self._entered,
                self._counters,
                label=label,
                path=LOGPROBS_PATH,
                asked=asked,
                vocabulary=vocabulary,
                weight=slots_of(asked),
            )
        )

    async def _result(self, request: ScoreRequest[T]) -> T:
        request.send()
        await request.wait()
        try:
            return request.result()
        except SampleError:
            self._counters.unscored += 1
            raise

    async def stream(
        self, samples: Iterable[Sample] | AsyncIterable[Sample]
    ) -> AsyncGenerator[tuple[int, Outcome], None]:
        """Score samples as they arrive and yield `(index, outcome)` as they complete; every index comes exactly once.

        Input is read only while there is room: at most twice `concurrency` times `batch` samples are started and not
        yet taken. An async iterable may take its time (a rollout); a plain one is read on the event loop, so it should
        not block.

        A failed sample under `skip` or with a penalty is an outcome like any other, and the rest go on. Under `raise`,
        the first failure ends the stream: what is in flight is cancelled, then the error is raised. Leaving the loop
        early cancels what is in flight as well; wrap the stream in `contextlib.aclosing` to have that happen at once.

        Raises:
            SampleError: A sample has no score and the policy is `raise`.
            PoolError: The pool cannot be used, whatever the policy.
        """

        def begin(sample: Sample, index: int) -> SampleRequest:
            return self._send(sample, index=index, on_end=ended)

        course: Stream[Sample, Outcome] = Stream(
            begin, ahead=self._config.ahead, demand=self._demand, waited=self.waited
        )

        def ended(request: SampleRequest) -> None:
            def deliver(failure: PoolError | None) -> None:
                try:
                    end: Outcome | BaseException = self._apply_policy(request.outcome(), failure)
                except BaseException as error:  # raised by the stream
                    end = error
                course.deliver(request.index, end)

            self._when_settled(request, deliver)

        async with aclosing(course.outcomes(samples)) as outcomes:
            async for item in outcomes:
                yield item

    def record_waits(self, waits: ScoreWaits) -> None:
        """Record where samples are, for the steps of a trainer that reports them; from any thread."""
        self._counters.waits = waits

    def _score_wait(self) -> float | None:
        waits = self._counters.waits
        return None if waits is None or waits.latest is None else waits.latest.share

    def waited(self, seconds: float) -> None:
        """Count seconds in which the reader of a stream of this pool had to wait."""
        self._counters.exposed_wait_seconds += seconds

    async def _outcome(self, sample: Sample) -> Outcome:
        """Score one sample; the failure policy is still to be applied. Raises PoolError."""
        noted, pool = current(), self.endpoint.pool
        if noted is not None and sample.revision is None and pool in noted.wanted:
            sample = replace(sample, revision=noted.wanted[pool])
        request = self._send(sample)
        await request.wait()
        outcome = request.outcome()
        if noted is not None and isinstance(outcome, Scored):
            noted.answered(pool, request.result().by)
        return outcome

    @property
    def one_revision(self) -> bool:
        """As in the config: whether one revision scores each group."""
        return self._config.one_revision

    def count_asked_again(self, samples: int, *, groups: int) -> None:
        """Count samples, and the groups they are of, that are asked again because two revisions had scored a group."""
        self._counters.asked_again += samples
        self._counters.groups_asked_again += groups

    def _gets_penalty(self, error: BaseException | None) -> bool:
        if not isinstance(error, SampleError):
            return False
        return isinstance(action_for(self._config.on_failure, error.fault), Penalty)

    def _when_settled(self, request: SampleRequest, settled: Settled) -> None:
        """Call back when the failure policy can be applied: now, but before the first score for a penalty."""
        if self._gets_penalty(request.error):
            self._entered.breaker.when_settled(settled)
        else:
            settled(None)

    def _apply_policy(self, outcome: Outcome, failure: PoolError | None = None) -> Outcome:
        """Return the outcome under the failure policy, or raise `failure`, the pool's."""
        if isinstance(outcome, Scored):
            return outcome
        error = outcome.error
        action = action_for(self._config.on_failure, error.fault)
        if isinstance(action, Penalty) and self._entered.breaker.is_proven:
            self._counters.penalties += 1
            log.warning("%s (%s, %s): it gets the penalty %g", error, error.fault, error.kind, action.penalty)
            return Scored(value=action.penalty, attempts=outcome.attempts, seconds=outcome.seconds, penalised_for=error)
        self._counters.unscored += 1
        if failure is not None:
            raise failure
        if action == "raise":
            raise error
        if isinstance(action, Penalty):
            log.warning("%s (%s, %s): it is unscored; %s", error, error.fault, error.kind, NOTHING_PROVEN)
        else:
            log.debug("%s (%s, %s): it is unscored", error, error.fault, error.kind)
        return outcome

    def _send(
        self, sample: Sample, *, index: int | None = None, on_end: Callable[[SampleRequest], None] | None = None
    ) -> SampleRequest:
        """Begin to score one sample; `index` is that in its stream, and `on_end` is called at its end."""
        request = SampleRequest(
            self._entered,
            self._counters,
            label=sample.id or f"#{next(self._unnamed) if index is None else index}",
            path=SCORE_PATH,
            sample=sample,
            index=index or 0,
            on_end=on_end,
        )
        self._demand.sample_comes(tokens=request.tokens)
        if self._batcher is None:
            request.send()
        else:
            self._batcher.add(request)
        return request


class Scoring(Work[Outcome]):
    """A sample that another thread handed over: no task, for its request calls back when it has ended."""

    def __init__(self, pool: Pool, sample: Sample) -> None:
        """The pool is on the loop that begins this."""
        super().__init__()
        self._pool = pool
        self._sample = sample
        self._request: SampleRequest | None = None

    def begin(self) -> None:
        self._request = self._pool._send(self._sample, on_end=self._ended)

    def give_up(self) -> None:
        if self._request is not None:
            self._request.cancel()
        else:
            self.cancel()

    def _ended(self, request: SampleRequest) -> None:
        self._request = None
        self._pool._when_settled(
            request, lambda failure: self.settle(lambda: self._pool._apply_policy(request.outcome(), failure))
        )


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class _Call(ScoreRequest[T]):
    """A request whose content and reader are functions of the caller."""

    ask: Callable[[Endpoint], dict[str, Any]]
    answer: Callable[[int, bytes, str], T]
    noted: Answering | None = field(default_factory=current)
    by: Signature | None = field(default=None, init=False)

    def content(self, endpoint: Endpoint) -> dict[str, Any]:
        return self.ask(endpoint)

    @property
    def is_score(self) -> bool:
        return self.answer is not read_object  # which takes any object

    @property
    def revision(self) -> str | None:
        return None if self.noted is None else self.noted.wanted.get(self.connections.endpoint.pool)

    def read(self, status: int, body: bytes) -> T:
        self.by = check_echo(status, body, self.echo)
        if self.by is not None and self.noted is not None:
            self.noted.answered(self.connections.endpoint.pool, self.by)
        return self.answer(status, body, self.label)

    def worker_of(self, answer: T) -> AnsweringWorker:
        return AnsweringWorker() if self.by is None else self.by.worker


def injected_pool(config: RewardConfig, **injected: Any) -> Pool:
    """A client whose `Connections` are given these: a clock, a network or a cluster other than the environment's."""
    client = Pool(config)
    client._opening = lambda: Connections(config, **injected)
    return client
