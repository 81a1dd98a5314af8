"""One of four workers is killed with -9 while samples stream: the slowest sample, and how many were lost."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ways import Way, callers, streamed

from client_cost.http_ways import check, stock_call, texts
from client_cost.stage import Stage, open_stage
from rewardpool import Pool

SAMPLES: Final = 2000
CONCURRENCY: Final = 64
SERVICE_MS: Final = 20
SHARE_BEFORE: Final = 0.2
"""Of the samples have a score when the worker dies."""
BOUND_SECONDS: Final = 60.0
"""verl's own call may take minutes, in which nothing new is learned."""
LOOKING_SECONDS: Final = 0.002
VICTIMS: Final = {"the first": 0, "the last": -1}
"""verl's router takes the first of its list where several are least loaded, so it matters which one dies."""


async def play_client(folder: Path, victim: str) -> dict[str, Any]:
    """The project's client, through sglang-router."""
    async with open_stage(folder, naive=False) as stage, Pool(stage.config(concurrency=CONCURRENCY)) as pool:
        return await _play(stage, streamed(pool, check), victim)


async def play_stock(folder: Path, victim: str) -> dict[str, Any]:
    """The call of verl itself, through its NaiveRouter."""
    async with open_stage(folder) as stage:
        return await _play(stage, callers(stock_call(stage.naive_router), CONCURRENCY, check), victim)


async def _play(stage: Stage, way: Way, victim: str) -> dict[str, Any]:
    await stage.serve_in(SERVICE_MS)
    given = texts(SAMPLES)
    await way(given[: SAMPLES // 10], [])
    latencies: list[float] = []
    began = time.monotonic()
    running = asyncio.create_task(way(given, latencies))
    while not running.done() and len(latencies) < SHARE_BEFORE * SAMPLES:  # noqa: ASYNC110 - the way knows no event
        await asyncio.sleep(LOOKING_SECONDS)
    stage.workers[VICTIMS[victim]].kill()
    problem = ""
    try:
        await asyncio.wait_for(running, BOUND_SECONDS)
    except TimeoutError:
        problem = f"not over after {BOUND_SECONDS:g} s"
    except Exception as error:  # what a stranger's call raises is a figure here
        problem = f"{type(error).__name__}: {error}"
    finally:
        running.cancel()
        with suppress(BaseException):
            await running
    return summary(latencies, seconds=time.monotonic() - began, victim=victim, problem=problem)


def summary(latencies: list[float], *, seconds: float, victim: str, problem: str) -> dict[str, Any]:
    """What the result's file says of one play; a sample that never had a score took at least the whole time. Pure."""
    lost = SAMPLES - len(latencies)
    slowest = max([*latencies, seconds if lost else 0.0])
    return {
        "victim": victim,
        "slowest_seconds": round(slowest, 3),
        "slowest": f">{BOUND_SECONDS:g} s" if lost and seconds >= BOUND_SECONDS else f"{slowest:.2f} s",
        "lost": lost,
        "problem": problem,
    }
