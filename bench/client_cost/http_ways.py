"""The same texts, sent in five ways, without verl around them.

direct          one pooled aiohttp session straight to the workers, in turn: the limit
session         the same session through sglang-router
client          `rewardpool.Pool.stream` through sglang-router
client_batched  the same with `batch: 8`: as many requests at a time, so up to eight times as many samples
verl_stock      verl's own call, unmodified (a session for each), through its own NaiveRouter
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
from support.fleet import SERVED_NAME
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from ways import Call, Way, bare_call, callers, score_of, streamed

from client_cost.figures import Ratios
from client_cost.stage import Stage
from rewardpool import Pool
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
        direct = bare_call(session, workers, stage.headers, model=SERVED_NAME)
        routed = bare_call(session, [stage.router], stage.headers, model=SERVED_NAME)
        yield {
            "direct": callers(direct, concurrency, check),
            "session": callers(routed, concurrency, check),
            "client": streamed(client, check),
            "client_batched": streamed(batched, check),
            "verl_stock": callers(stock_call(stage.naive_router), concurrency, check),
        }


def stock_call(address: str) -> Call:
    """The call of verl itself; the worker's other half, its tokenizers, is not needed for it."""
    worker = RewardLoopWorker.__new__(RewardLoopWorker)
    worker.reward_router_address = address

    async def call(text: str) -> float:
        return score_of(await worker._post_request({"model": SERVED_NAME, "input": text}, SCORE_PATH.lstrip("/")))

    return call


def check(text: str, score: float) -> None:
    """Raise unless the score is the text's length, as a stand-in scores."""
    if score != len(text):
        raise RuntimeError(f"the score of a text of {len(text)} characters is {score}")
