"""A job that has its samples scored, whatever happens, and what came of each."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from simulation.client.faults import Stage
from simulation.client.fleet import bad_text
from simulation.client.plan import Plan

from rewardpool import FunctionSample, Outcome, Pool, RewardConfig, Sample
from rewardpool._client.pool import injected_pool
from rewardpool._client.threads.shared import shared
from rewardpool._client.transport import Connections
from rewardpool.errors import PoolError, SampleError
from rewardpool_api.contract import FAULTS, CallerErrorCode

BAD_CODES: Final[tuple[CallerErrorCode, ...]] = ("sample_too_long", "invalid_sample", "function_failed")
MOST_CLIENTS: Final = 12
"""One after the other; a pool's error ends a client."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One sample or conversation."""

    sample: Sample
    text: str
    """As the workers read it."""
    is_judgement: bool = False


@dataclass(kw_only=True)
class End:
    """What came of one: an outcome, a judgement, an error, or its cancellation."""

    what: Outcome | str | BaseException
    began_at: float
    ended_at: float
    times: int = 1


class Traffic:
    """All samples of a run."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.plan = plan
        self.stage = stage
        self.loop = stage.loop
        self.asks: list[Ask] = []
        self.ends: dict[int, End] = {}
        self.began_at: dict[int, float] = {}
        self.cancelled: set[int] = set()
        """Given up by the job."""
        self.pools: list[Pool] = []
        self.connections: list[Connections] = []
        self.pool_errors: list[tuple[PoolError, set[int]]] = []
        """Each with the samples that it left without an end."""
        self.left: set[int] = set()
        """Not ended when the job gave up."""
        self._chance = random.Random(f"traffic {plan.seed}")
        self._client: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._progress: list[tuple[int, asyncio.Future[None]]] = []
        stage.cancel_client = self.cancel_client
        stage.cancel_some = self.cancel_some

    async def run(self) -> None:
        """Until every sample has an end, or too many clients have ended before that."""
        for _ in range(MOST_CLIENTS):
            left = [index for index in range(self.plan.samples) if index not in self.ends]
            if not left:
                return
            self._is_cancelled = False
            self._client = asyncio.create_task(self._one_client(left))
            try:
                await self._client
            except asyncio.CancelledError:
                if not self._is_cancelled:
                    self._client.cancel()
                    raise
                self.stage.say("the client was cancelled; another one goes on")
            except PoolError as error:
                self.stage.say(f"the client ended by {type(error).__name__}: {error}")
                self.pool_errors.append((error, {one for one in left if one not in self.ends}))
                await asyncio.sleep(2.0)
        self.left = {index for index in range(self.plan.samples) if index not in self.ends}

    async def reaches(self, share: float) -> None:
        """Wait until so many samples have an end."""
        wanted = int(share * self.plan.samples)
        if len(self.ends) < wanted:
            reached = self.loop.create_future()
            self._progress.append((wanted, reached))
            await reached

    def cancel_client(self) -> None:
        if self._client is not None and not self._client.done():
            self._is_cancelled = True
            self._client.cancel()

    def cancel_some(self, chance: random.Random) -> None:
        for index in list(self._tasks):
            if chance.random() < 0.1:
                self.cancelled.add(index)
                self._tasks[index].cancel()

    async def _one_client(self, left: Sequence[int]) -> None:
        config = RewardConfig(
            **self.plan.config, **({"pool": "rl/fleet"} if self.plan.is_ours else {"url": "http://pool.rl.svc"})
        )
        if self.plan.mode == "shared":
            await self._shared(config, left)
            return
        pool = injected_pool(config, **self._injected())
        self.pools.append(pool)
        async with pool:
            self.connections.append(pool._entered)
            match self.plan.mode:
                case "tasks":
                    await self._in_tasks(pool, left)
                case mode:
                    await self._streamed(pool, left, in_bursts=mode == "bursts")

    def _injected(self) -> dict[str, Any]:
        return {"find": self.stage.find, "clock": self.loop.time}

    async def _shared(self, config: RewardConfig, left: Sequence[int]) -> None:
        """Two clients with one pool's connections."""
        pools = [Pool(config) for _ in range(2)]
        self.pools += pools
        try:
            async with asyncio.TaskGroup() as group:
                for number, pool in enumerate(pools):
                    pool._opening = lambda: shared().lease(config, lambda: Connections(config, **self._injected()))
                    group.create_task(self._one_of_two(pool, left[number::2]))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _one_of_two(self, pool: Pool, left: Sequence[int]) -> None:
        async with pool:
            if pool._entered not in self.connections:
                self.connections.append(pool._entered)
            await self._streamed(pool, left, in_bursts=True)

    async def _streamed(self, pool: Pool, left: Sequence[int], *, in_bursts: bool) -> None:
        judged = asyncio.create_task(self._judged(pool, left))
        order: list[int] = []
        samples = self._asked(left, order)
        try:
            async with aclosing(pool.stream(self._slowly(samples) if in_bursts else samples)) as stream:
                async for position, outcome in stream:
                    self._ended(order[position], outcome)
            await judged
        finally:
            judged.cancel()
            await asyncio.gather(judged, return_exceptions=True)

    def _asked(self, left: Sequence[int], order: list[int]) -> Iterator[Sample]:
        for index in left:
            ask = self.ask(index)
            if not ask.is_judgement:
                order.append(index)
                self.began_at[index] = self.loop.time()
                yield ask.sample

    async def _slowly(self, samples: Iterator[Sample]) -> AsyncIterator[Sample]:
        size = max(1, self.plan.samples // 10)
        for number, sample in enumerate(samples, 1):
            yield sample
            if number % size == 0:
                await asyncio.sleep(self._chance.uniform(0.0, 4.0))

    async def _judged(self, pool: Pool, left: Sequence[int]) -> None:
        for index in left:
            if self.ask(index).is_judgement:
                await self._judge(pool, index)

    async def _judge(self, pool: Pool, index: int) -> None:
        self.began_at[index] = self.loop.time()
        try:
            what: Any = await pool.judge([{"role": "user", "content": self.ask(index).text}])
        except SampleError as error:
            what = error
        self._ended(index, what)

    async def _in_tasks(self, pool: Pool, left: Sequence[int]) -> None:
        """A task for each, not all at once."""
        at_once = asyncio.Semaphore(4 * self.plan.config["concurrency"])

        async def one(index: int) -> None:
            try:
                if self.ask(index).is_judgement:
                    await self._judge(pool, index)
                else:
                    self.began_at[index] = self.loop.time()
                    self._ended(index, await pool.outcome(self.ask(index).sample))
            except asyncio.CancelledError as error:
                if index not in self.cancelled:
                    raise
                self._ended(index, error)

        def over(index: int, task: asyncio.Task[None]) -> None:
            at_once.release()
            del self._tasks[index]
            if task.cancelled() and index in self.cancelled and index not in self.ends:  # before it began
                self.began_at.setdefault(index, self.loop.time())
                self._ended(index, asyncio.CancelledError())

        try:
            async with asyncio.TaskGroup() as group:
                for index in left:
                    await at_once.acquire()
                    self._tasks[index] = group.create_task(one(index))
                    self._tasks[index].add_done_callback(partial(over, index))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _ended(self, index: int, what: Outcome | str | BaseException) -> None:
        if index in self.ends:
            self.ends[index].times += 1
            return
        self.ends[index] = End(what=what, began_at=self.began_at[index], ended_at=self.loop.time())
        while self._progress and len(self.ends) >= self._progress[0][0]:
            _, reached = self._progress.pop(0)
            if not reached.done():
                reached.set_result(None)

    def ask(self, index: int) -> Ask:
        """Drawn when it is handed over first."""
        while len(self.asks) <= index:
            self.asks.append(self._drawn(len(self.asks)))
        return self.asks[index]

    def _drawn(self, number: int) -> Ask:
        chance, plan = self._chance, self.plan
        if chance.random() < plan.judgements:
            text = f"conversation {plan.seed} {number}"
            return Ask(sample=Sample(text=text), text=text, is_judgement=True)
        pinned = chance.random() < plan.pinned
        # Of the revision that serves now; a group's further members are asked like that.
        revision = self.stage.where.revisions[0] if pinned else None
        text = f"sample {plan.seed} {number}"
        if plan.kind != "token_ids" and chance.random() < plan.bad + self.stage.bad_share:
            text = bad_text(chance.choice(BAD_CODES), chance.choice(FAULTS[:2]), number)
        sample: Sample
        if plan.kind == "token_ids":
            sample = Sample(token_ids=[number, plan.seed % 30_000, 7], revision=revision)
            return Ask(sample=sample, text=",".join(map(str, sample.token_ids or ())))
        if plan.kind == "function":
            row = FunctionSample(data_source="sim", solution_str=text, ground_truth="")
            sample = Sample(function=row, revision=revision)
            return Ask(sample=sample, text=row.to_json(""))
        return Ask(sample=Sample(text=text, revision=revision), text=text)
