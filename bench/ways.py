"""Ways to have texts scored, for benches that compare them: a bare session, and the project's own client."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import aiohttp

from rewardpool import Pool, Sample, Scored
from rewardpool_api.contract import SCORE_PATH

Given = str | Sequence[int]
"""What is scored: a text, or token ids."""
Way = Callable[[Sequence[Given], list[float]], Coroutine[Any, Any, None]]
"""Scores every one once, and appends the seconds of each to the list as it is done; raises at a wrong score."""
Call = Callable[[Given], Awaitable[float]]
"""Scores one."""
Check = Callable[[Any, float], None]
"""Raises when this is not its score."""


def bare_call(session: aiohttp.ClientSession, urls: Sequence[str], headers: dict[str, str], *, model: str) -> Call:
    """The bare session, to these addresses in turn: no retry, no deadline, no check, no report."""
    addresses = itertools.cycle(f"{url}{SCORE_PATH}" for url in urls)

    async def call(one: Given) -> float:
        body = {"model": model, "input": one}
        async with session.post(next(addresses), json=body, headers=headers) as answer:
            answer.raise_for_status()
            return score_of(await answer.json())

    return call


def callers(call: Call, concurrency: int, check: Check) -> Way:
    """So many callers that take one after the other."""

    async def run(given: Sequence[Given], latencies: list[float]) -> None:
        waiting = iter(given)

        async def one_caller() -> None:
            for one in waiting:
                began = time.perf_counter()
                check(one, await call(one))
                latencies.append(time.perf_counter() - began)

        await asyncio.gather(*(one_caller() for _ in range(concurrency)))

    return run


def streamed(pool: Pool, check: Check) -> Way:
    """The project's client: a sample's seconds are its own, from its first request to its score."""

    async def run(given: Sequence[Given], latencies: list[float]) -> None:
        async for index, outcome in pool.stream(_sample(one) for one in given):
            if not isinstance(outcome, Scored):
                raise outcome.error
            check(given[index], outcome.value)
            latencies.append(outcome.seconds)

    return run


def _sample(one: Given) -> Sample:
    return Sample(text=one) if isinstance(one, str) else Sample(token_ids=one)


def score_of(answer: Any) -> float:
    """The score of an answer's only sample."""
    return float(answer["data"][0]["embedding"][0])
