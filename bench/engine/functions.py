"""The function engine beside a bare ASGI app with the same function, asked directly by one session.

engine            `rewardpool_worker.function_server`, as a pool starts it: a process for each call, or one event loop
engine_kept       the same, with processes that are kept
uvicorn           the app on uvicorn alone: asyncio, h11
uvicorn_standard  the app on uvicorn with uvloop and httptools
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
from client_cost.figures import Ratios
from rich.progress import Progress
from support.fleet import Program, server_python
from ways import bare_call, callers

from engine.plain_app import ENV_FUNCTION
from engine.turns import Scores, take_turns
from rewardpool_api.names import ENV_KEY_FILE

FUNCTIONS: Final = ("compute_score", "compute_score_async")
CONCURRENCY: Final = 64
START_SECONDS: Final = 30.0
KEY: Final = "the-key-of-the-bench"
RATIOS: Final[Ratios] = {
    "engine/uvicorn": ("engine", "uvicorn"),
    "engine/uvicorn_standard": ("engine", "uvicorn_standard"),
    "engine_kept/uvicorn": ("engine_kept", "uvicorn"),
}
UVICORN: Final[Mapping[str, tuple[str, ...]]] = {
    "uvicorn": ("--loop", "asyncio", "--http", "h11"),
    "uvicorn_standard": ("--loop", "uvloop", "--http", "httptools"),
}


def texts(count: int) -> list[str]:
    """So many samples of about 1 kB, each with a score of its own."""
    answer = "so that is what it comes to, step by step; " * 20
    return [
        json.dumps({"data_source": "bench", "solution_str": f"{answer}{number}", "ground_truth": 0.5, "extra_info": {}})
        for number in range(count)
    ]


def measure(folder: Path, *, samples: int, rounds: int, progress: Progress) -> Iterator[dict[str, Any]]:
    """The sync function, then the async one; arguments as in `engines.measure`."""
    folder.mkdir()
    (folder / "key").write_text(KEY)
    for function in FUNCTIONS:
        yield {"function": function, **asyncio.run(_rounds(folder, function, texts(samples), rounds, progress))}


async def _rounds(folder: Path, function: str, given: list[str], rounds: int, progress: Progress) -> dict[str, Any]:
    scores = Scores()
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        _servers(folder, function) as servers,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        bar = progress.add_task(f"functions, {function}", total=rounds * len(servers))
        ways = {
            name: callers(bare_call(session, [server.url], headers, model="function"), CONCURRENCY, scores.check)
            for name, server in servers.items()
        }
        advance = lambda: progress.advance(bar)  # noqa: E731
        return await take_turns(ways, given, rounds=rounds, ratios=RATIOS, scores=scores, done=advance)


@asynccontextmanager
async def _servers(folder: Path, function: str) -> AsyncIterator[dict[str, Program]]:
    path = str(Path(__file__).parents[1])

    def engine(flags: tuple[str, ...], port: int) -> list[str]:
        argv = [sys.executable, "-m", "rewardpool_worker.function_server", "--function", f"engine.rewards:{function}"]
        return [*argv, "--port", str(port), *flags]

    def plain(flags: tuple[str, ...], port: int) -> list[str]:
        argv = [server_python(), "-m", "uvicorn", "engine.plain_app:app", "--port", str(port), "--no-access-log"]
        return [*argv, *flags]

    env = {"PYTHONPATH": path, ENV_FUNCTION: function, ENV_KEY_FILE: str(folder / "key")}
    kept = ("--calls-per-process", "0")
    commands = {"engine": partial(engine, ()), "engine_kept": partial(engine, kept)} | {
        name: (lambda port, flags=flags: plain(flags, port)) for name, flags in UVICORN.items()
    }
    servers = {
        name: Program(command, env=env, log=folder / f"{function}-{name}.log") for name, command in commands.items()
    }
    async with AsyncExitStack() as stack:
        for server in servers.values():
            stack.callback(server.kill)
        await asyncio.gather(*(server.start(seconds=START_SECONDS) for server in servers.values()))
        yield servers
