"""Ways to have texts scored, for benches that compare them: a bare session, and the project's own client."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import aiohttp

from rewardpool import Pool, Sample, Scored
from rewardpool_api.contract import SCORE_PATH

Way = Callable[[Sequence[str], list[float]], Coroutine[Any, Any, None]]
"""Scores every text once, and appends the seconds of each to the list as it is done; raises at a wrong score."""
Call = Callable[[str], Awaitable[float]]
"""Scores one text."""
Check = Callable[[str, float], None]
"""Raises when this is not the text's score."""


def bare_call(session: aiohttp.ClientSession, urls: Sequence[str], headers: dict[str, str], *, model: str) -> Call:
    """The bare session, to these addresses in turn: no retry, no deadline, no check, no report."""
    addresses = itertools.cycle(f"{url}{SCORE_PATH}" for url in urls)

    async def call(text: str) -> float:
        body = {"model": model, "input": text}
        async with session.post(next(addresses), json=body, headers=headers) as answer:
            answer.raise_for_status()
            return score_of(await answer.json())

    return call


def callers(call: Call, concurrency: int, check: Check) -> Way:
    """So many callers that take one text after the other."""

    async def run(given: Sequence[str], latencies: list[float]) -> None:
        waiting = iter(given)

        async def one_caller() -> None:
            for text in waiting:
                began = time.perf_counter()
                check(text, await call(text))
                latencies.append(time.perf_counter() - began)

        await asyncio.gather(*(one_caller() for _ in range(concurrency)))

    return run


def streamed(pool: Pool, check: Check) -> Way:
    """The project's client: a sample's seconds are its own, from its first request to its score."""

    async def run(given: Sequence[str], latencies: list[float]) -> None:
        async for index, outcome in pool.stream(Sample(text=text) for text in given):
            if not isinstance(outcome, Scored):
                raise outcome.error
            check(given[index], outcome.value)
            latencies.append(outcome.seconds)

    return run


def score_of(answer: Any) -> float:
    """The score of an answer's only sample."""
    return float(answer["data"][0]["embedding"][0])
