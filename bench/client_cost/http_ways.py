"""The same samples, sent in several ways, without verl around them.

direct          one pooled aiohttp session straight to the workers, in turn: the limit
session         the same session through sglang-router
client          `rewardpool.Pool.stream` through sglang-router
client_batched  the same with `batch: 8`: as many requests at a time, so up to eight times as many samples
client_auto     the same with `batch: auto`
httpx           one pooled httpx client, which is what AsyncOpenAI sends with, through sglang-router
balancer        the session, through a load balancer of one process (`balancer.py`) in the router's place
verl_stock      verl's own call, unmodified (a session for each), through its own NaiveRouter

Beyond 1,024 at a time there are only `session`, `client` and `client_auto`, for each way keeps its connections open,
and the limit of open files is soon reached. The last three are for texts, and httpx for no more than 64 at a time: it
looks through all that waits at each answer.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
import httpx
from support.fleet import SERVED_NAME
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from ways import Call, Given, Way, bare_call, callers, score_of, streamed

from client_cost.figures import Ratios, Setting
from client_cost.stage import Stage
from rewardpool import Pool
from rewardpool_api.contract import SCORE_PATH

BATCH: Final = 8
TEXT_CHARACTERS: Final = 1400
RATIOS: Final[Ratios] = {
    "client/session": ("client", "session"),
    "client_batched/session": ("client_batched", "session"),
    "client_auto/session": ("client_auto", "session"),
    "client_auto/client": ("client_auto", "client"),
    "client/verl_stock": ("client", "verl_stock"),
    "session/direct": ("session", "direct"),
    "client/direct": ("client", "direct"),
    "session/verl_stock": ("session", "verl_stock"),
    "client/httpx": ("client", "httpx"),
    "client/balancer": ("client", "balancer"),
}
CROWD_WAYS: Final = ("session", "client", "client_auto")
"""With 16,384 at a time."""
MOST_OF_PEERS: Final = 1024
"""At a time."""
MOST_OF_HTTPX: Final = 64
"""At a time: with 1,024 it takes minutes for what others do in a second."""
TOKENS: Final = 4096
VOCABULARY: Final = 128_000


def token_ids(count: int) -> list[list[int]]:
    """So many samples of about 4,096 token ids."""
    base = [(number * 7919) % VOCABULARY for number in range(TOKENS)]
    return [base[number % 64 :] for number in range(count)]


def texts(count: int) -> list[str]:
    """So many texts of about 1.4 kB."""
    return ["x" * (TEXT_CHARACTERS - 200 + number % 400) for number in range(count)]


@asynccontextmanager
async def open_ways(
    stage: Stage, setting: Setting, *, only: Collection[str] | None = None
) -> AsyncIterator[dict[str, Way]]:
    """Every way of a setting, or only these, with its connections, which are opened when they are needed."""
    concurrency = setting.concurrency
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        client, auto, batched = [
            await stack.enter_async_context(Pool(stage.config(concurrency=concurrency, batch=batch)))
            for batch in (1, "auto", BATCH)
        ]
        workers = [worker.url for worker in stage.workers]
        direct = bare_call(session, workers, stage.headers, model=SERVED_NAME)
        routed = bare_call(session, [stage.router], stage.headers, model=SERVED_NAME)
        ways = {"session": callers(routed, concurrency, check), "client": streamed(client, check)}
        ways["client_auto"] = streamed(auto, check)
        if concurrency <= MOST_OF_PEERS:
            ways["direct"] = callers(direct, concurrency, check)
        if concurrency <= MOST_OF_PEERS and setting.kind == "text":  # token ids go alone
            ways["client_batched"] = streamed(batched, check)
        if setting.kind == "text" and concurrency <= MOST_OF_PEERS:
            balanced = bare_call(session, [stage.balancer], stage.headers, model=SERVED_NAME)
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            other = await stack.enter_async_context(httpx.AsyncClient(limits=limits, timeout=None))
            if concurrency <= MOST_OF_HTTPX:
                ways["httpx"] = callers(httpx_call(other, stage), concurrency, check)
            ways["balancer"] = callers(balanced, concurrency, check)
            ways["verl_stock"] = callers(stock_call(stage.naive_router), concurrency, check)
        yield {name: way for name, way in ways.items() if only is None or name in only}


def httpx_call(client: httpx.AsyncClient, stage: Stage) -> Call:
    """The same request as the bare session's."""

    async def call(one: Given) -> float:
        body = {"model": SERVED_NAME, "input": one}
        answer = await client.post(f"{stage.router}{SCORE_PATH}", json=body, headers=stage.headers)
        return score_of(answer.raise_for_status().json())

    return call


def stock_call(address: str) -> Call:
    """The call of verl itself; the worker's other half, its tokenizers, is not needed for it."""
    worker = RewardLoopWorker.__new__(RewardLoopWorker)
    worker.reward_router_address = address

    async def call(one: Given) -> float:
        return score_of(await worker._post_request({"model": SERVED_NAME, "input": one}, SCORE_PATH.lstrip("/")))

    return call


def check(one: Given, score: float) -> None:
    """Raise unless the score is the length, as a stand-in scores."""
    if score != len(one):
        raise RuntimeError(f"the score of a sample of the length {len(one)} is {score}")
