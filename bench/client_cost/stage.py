"""Where the samples go: stand-in workers, in front of them a real sglang-router and verl's real NaiveRouter."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import aiohttp
from support.fleet import SERVED_NAME, Fleet, Program, server_python

from rewardpool import RewardConfig

WORKERS: Final = 4
STAND_IN: Final = Path(__file__).with_name("stand_in_worker.py")
BALANCER: Final = Path(__file__).with_name("balancer.py")
MOST_HEDGED: Final = 4096
"""At a time: hedges need open files of their own."""
IMPORT_SECONDS: Final = 120.0
"""For verl's imports, on a machine that is busy."""
NAIVE_ROUTER: Final = """
import sys
from verl.experimental.reward_loop.router.naive_router import run_router
run_router("127.0.0.1", int(sys.argv[1]), sys.argv[2:])
"""
"""As `launch_router_process` of verl starts it; what is left out is only the choice of a port by Ray."""


@dataclass(frozen=True)
class Stage:
    """What is there to be asked."""

    workers: tuple[Program, ...]
    router: str
    """sglang-router's URL."""
    naive_router: str
    """The address of verl's, without a scheme, as verl takes it."""
    balancer: str
    """The URL of a load balancer of one process."""
    key_file: Path
    """Has the key that sglang-router asks for."""

    @property
    def headers(self) -> dict[str, str]:
        """For requests to sglang-router."""
        return {"Authorization": f"Bearer {self.key_file.read_text()}"}

    def config(self, *, concurrency: int, batch: int | Literal["auto"] = 1) -> RewardConfig:
        """The client's."""
        return RewardConfig(
            hedge=concurrency <= MOST_HEDGED,
            url=self.router,
            key_file=self.key_file,
            served_name=SERVED_NAME,
            concurrency=concurrency,
            batch=batch,
            announce=False,
        )

    async def serve_in(self, milliseconds: int) -> None:
        """Set the service time of all workers."""
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            for worker in self.workers:
                async with session.put(f"{worker.url}/service-ms/{milliseconds}"):
                    pass


@asynccontextmanager
async def open_stage(folder: Path, *, naive: bool = True) -> AsyncIterator[Stage]:
    """Start it all; every process is killed at the end.

    Args:
        folder: For keys and logs; it is made.
        naive: Whether verl's router is wanted, whose imports take seconds.
    """
    folder.mkdir(parents=True)  # noqa: ASYNC240 - it takes no time

    def stand_in(port: int) -> list[str]:
        return [server_python(), str(STAND_IN), "--port", str(port)]

    workers = tuple(Program(stand_in, env={}, log=folder / f"stand-in-{number}.log") for number in range(WORKERS))
    urls = [worker.url for worker in workers]
    naive_router = Program(
        lambda port: [sys.executable, "-c", NAIVE_ROUTER, str(port), *urls], env={}, log=folder / "naive-router.log"
    )
    balancer = Program(
        lambda port: [sys.executable, str(BALANCER), "--port", str(port), *urls], env={}, log=folder / "balancer.log"
    )
    programs = [*workers, balancer, *([naive_router] if naive else [])]
    async with AsyncExitStack() as stack:
        for program in programs:
            stack.callback(program.kill)
        await asyncio.gather(*(program.start() for program in (*workers, balancer)))
        fleet = await stack.enter_async_context(Fleet(folder, workers=0, others=urls))
        if naive:
            await naive_router.start(seconds=IMPORT_SECONDS)
        naive_url = naive_router.url.removeprefix("http://")
        yield Stage(workers, fleet.router.url, naive_url, balancer.url, fleet.key_file)
