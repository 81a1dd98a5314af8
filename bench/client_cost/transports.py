"""The bare transports that a client may be built on, through the real router: their rate, and their own CPU time.

aiohttp    one session; the body is made by orjson, as for the others
pyreqwest  a client whose core is native (Rust's reqwest), with a pool of its own
lean       `rewardpool._client.connections.http`, which is what `rewardpool.Pool` sends with

Each sends the same bytes and reads the score out of the same answer: no retry, no deadline, no report.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson
from pyreqwest.client import ClientBuilder
from rich.progress import Progress
from support.fleet import SERVED_NAME
from support.posts import post
from ways import Given, callers

from client_cost.figures import Setting, spread
from client_cost.http_ways import check, texts, token_ids
from client_cost.stage import Stage
from rewardpool._client.connections.http import HttpClient
from rewardpool._client.connections.target import target
from rewardpool_api.contract import SCORE_PATH

SETTINGS: Final = tuple(
    Setting(service_ms=0, concurrency=concurrency, kind=kind)
    for kind in ("text", "token ids")
    for concurrency in (64, 1024)
)
Send = Callable[[bytes], Awaitable[bytes]]
"""Sends a body; returns the answer's."""


async def measure(stage: Stage, *, samples: int, rounds: int, progress: Progress) -> AsyncIterator[dict[str, Any]]:
    """Each setting: the transports take turns in every round, after one that does not count."""
    await stage.serve_in(0)
    for setting in SETTINGS:
        given: Sequence[Given] = texts(samples) if setting.kind == "text" else token_ids(samples)
        bar = progress.add_task(f"transports, {setting.title}", total=rounds)
        found: dict[str, dict[str, list[float]]] = {}
        async with transports(stage) as ways:
            for number in range(rounds + 1):
                for name, send in ways.items():
                    figures = await _timed(send, given, setting.concurrency)
                    for figure, value in figures.items():
                        found.setdefault(name, {}).setdefault(figure, []).extend([value] if number else [])
                progress.advance(bar, 1 if number else 0)
        yield {
            "concurrency": setting.concurrency,
            "kind": setting.kind,
            "rounds": rounds,
            "ways": {
                name: {figure: spread(values, digits=0) for figure, values in figures.items()}
                for name, figures in found.items()
            },
        }


@asynccontextmanager
async def transports(stage: Stage) -> AsyncIterator[dict[str, Send]]:
    """Each with its connections."""
    url, headers = f"{stage.router}{SCORE_PATH}", {**stage.headers, "Content-Type": "application/json"}
    to = target(url, key=stage.key_file.read_text(), tls=None)
    async with AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar())
        )
        native = await stack.enter_async_context(ClientBuilder().default_headers(headers).http1_only().build())
        lean = HttpClient()
        stack.push_async_callback(lean.close)

        async def by_aiohttp(body: bytes) -> bytes:
            async with session.post(url, data=body) as answer:
                return await answer.read()

        async def by_pyreqwest(body: bytes) -> bytes:
            answer = await native.post(url).body_bytes(body).build().send()
            return bytes(await answer.bytes())

        async def by_us(body: bytes) -> bytes:
            return (await post(lean, to, b"", body)).body

        yield {"aiohttp": by_aiohttp, "pyreqwest": by_pyreqwest, "lean": by_us}


async def _timed(send: Send, given: Sequence[Given], concurrency: int) -> dict[str, float]:
    async def call(one: Given) -> float:
        answer = orjson.loads(await send(orjson.dumps({"model": SERVED_NAME, "input": one})))
        return float(answer["data"][0]["embedding"][0])

    began, cpu_began = time.perf_counter(), time.process_time()
    await callers(call, concurrency, check)(given, [])
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return {"samples_per_second": len(given) / seconds, "cpu_us": 1e6 * cpu_seconds / len(given)}
