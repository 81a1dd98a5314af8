"""The same texts, sent in five ways, without verl around them.

direct          one pooled aiohttp session straight to the workers, in turn: the limit
session         the same session through sglang-router
client          `rewardpool.Pool.stream` through sglang-router
client_batched  the same with `batch: 8`: as many requests at a time, so up to eight times as many samples
verl_stock      verl's own call, unmodified (a session for each), through its own NaiveRouter
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import aiohttp
from support.fleet import SERVED_NAME
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

from client_cost.figures import Ratios
from client_cost.stage import Stage, score_address
from rewardpool import Pool, Sample, Scored
from rewardpool_api.contract import SCORE_PATH

BATCH: Final = 8
TEXT_CHARACTERS: Final = 1400
RATIOS: Final[Ratios] = {
    "client/session": ("client", "session"),
    "client_batched/session": ("client_batched", "session"),
    "client/verl_stock": ("client", "verl_stock"),
    "session/direct": ("session", "direct"),
    "client/direct": ("client", "direct"),
    "session/verl_stock": ("session", "verl_stock"),
}

Way = Callable[[Sequence[str], list[float]], Coroutine[Any, Any, None]]
"""Scores every text once, and appends the seconds of each to the list as it is done; raises at a wrong score."""
Call = Callable[[str], Awaitable[float]]
"""Scores one text."""


def texts(count: int) -> list[str]:
    """So many texts of about 1.4 kB."""
    return ["x" * (TEXT_CHARACTERS - 200 + number % 400) for number in range(count)]


@asynccontextmanager
async def open_ways(stage: Stage, *, concurrency: int) -> AsyncIterator[dict[str, Way]]:
    """Every way, with its connections."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        client = await stack.enter_async_context(Pool(stage.config(concurrency=concurrency)))
        batched = await stack.enter_async_context(Pool(stage.config(concurrency=concurrency, batch=BATCH)))
        workers = [worker.url for worker in stage.workers]
        yield {
            "direct": callers(bare_call(session, workers, stage.headers), concurrency),
            "session": callers(bare_call(session, [stage.router], stage.headers), concurrency),
            "client": streamed(client),
            "client_batched": streamed(batched),
            "verl_stock": callers(stock_call(stage.naive_router), concurrency),
        }


def bare_call(session: aiohttp.ClientSession, urls: Sequence[str], headers: dict[str, str]) -> Call:
    """The bare session: no retry, no deadline, no check, no report."""
    addresses = itertools.cycle(map(score_address, urls))

    async def call(text: str) -> float:
        body = {"model": SERVED_NAME, "input": text}
        async with session.post(next(addresses), json=body, headers=headers) as answer:
            answer.raise_for_status()
            return _score(await answer.json())

    return call


def stock_call(address: str) -> Call:
    """The call of verl itself; the worker's other half, its tokenizers, is not needed for it."""
    worker = RewardLoopWorker.__new__(RewardLoopWorker)
    worker.reward_router_address = address

    async def call(text: str) -> float:
        return _score(await worker._post_request({"model": SERVED_NAME, "input": text}, SCORE_PATH.lstrip("/")))

    return call


def callers(call: Call, concurrency: int) -> Way:
    """So many callers that take one text after the other."""

    async def run(given: Sequence[str], latencies: list[float]) -> None:
        waiting = iter(given)

        async def one_caller() -> None:
            for text in waiting:
                began = time.perf_counter()
                _check(text, await call(text))
                latencies.append(time.perf_counter() - began)

        await asyncio.gather(*(one_caller() for _ in range(concurrency)))

    return run


def streamed(pool: Pool) -> Way:
    """The project's client: a sample's seconds are its own, from its first request to its score."""

    async def run(given: Sequence[str], latencies: list[float]) -> None:
        async for index, outcome in pool.stream(Sample(text=text) for text in given):
            if not isinstance(outcome, Scored):
                raise outcome.error
            _check(given[index], outcome.value)
            latencies.append(outcome.seconds)

    return run


def _score(answer: Any) -> float:
    return float(answer["data"][0]["embedding"][0])


def _check(text: str, score: float) -> None:
    if score != len(text):
        raise RuntimeError(f"the score of a text of {len(text)} characters is {score}")
