"""The client beside a bare session: both fetch the same bytes, from a server of constants, and make arrays of them."""

import asyncio
import multiprocessing
import statistics
import time
from array import array
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from rewardpool import Pool, RewardConfig
from rewardpool_api.teacher_wire import FLOAT32, INT32, LOGPROBS_PATH, SequenceQuestion
from teacher_cost.wires import flat_lists, ours

CODES = {"token_ids": INT32, "logprobs": FLOAT32, "top_ids": INT32, "top_logprobs": FLOAT32}


def serve(body: bytes, told: Any) -> None:
    """Answer every question with these bytes, on a free port of loopback, which is told."""

    async def answers(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, content_type="application/json")

    async def run() -> None:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post(LOGPROBS_PATH, answers)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        told.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


@asynccontextmanager
async def served(body: bytes) -> AsyncIterator[str]:
    """The URL of such a server, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    listens, told = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(body, told), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{await asyncio.to_thread(listens.recv)}"
    finally:
        process.kill()
        process.join()


async def bare(session: aiohttp.ClientSession, url: str, request: dict[str, Any]) -> list[Any]:
    """What a trainer would write itself: no check, no other try."""
    async with session.post(url + LOGPROBS_PATH, data=orjson.dumps(request)) as answer:
        answer.raise_for_status()
        said = orjson.loads(await answer.read())
    found = []
    for name, code in CODES.items():
        values = array(code)
        values.frombytes(b64decode(said[name]))
        found.append(values)
    return found


async def measure(asked: SequenceQuestion, *, rounds: int, requests: int, at_once: int) -> dict[str, Any]:
    """Requests a second of both ways, turn by turn."""
    rates: dict[str, list[float]] = {"client": [], "bare": []}
    async with served(ours(flat_lists(asked), asked)) as url:
        config = RewardConfig(url=url, concurrency=at_once, timeout=600)
        connector = aiohttp.TCPConnector(limit=at_once)
        async with Pool(config) as pool, aiohttp.ClientSession(connector=connector) as session:
            ways: dict[str, Callable[[], Awaitable[Any]]] = {
                "client": lambda: pool.logprobs_of(asked, label="s"),
                "bare": lambda: bare(session, url, asked.to_wire()),
            }
            for way in ways.values():  # connections, and the code's first run
                await way()
            for _ in range(rounds):
                for name, way in ways.items():
                    rates[name].append(await rate(way, requests=requests, at_once=at_once))
    ratios = [ours / theirs for ours, theirs in zip(rates["client"], rates["bare"], strict=True)]
    return {
        "positions": asked.rows,
        "top_k": asked.top_k,
        "at_once": at_once,
        "requests_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "ratio": statistics.median(ratios),
    }


async def rate(way: Callable[[], Awaitable[Any]], *, requests: int, at_once: int) -> float:
    """Requests a second, so many at once."""
    began = time.perf_counter()
    left = iter(range(requests))

    async def work() -> None:
        for _ in left:
            await way()

    await asyncio.gather(*(work() for _ in range(at_once)))
    return requests / (time.perf_counter() - began)
