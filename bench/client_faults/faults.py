"""The faults. Each begins when a fifth of the samples has a score; the first line of its docstring is its promise."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from client_faults.stage import Stage
from client_faults.stand_in_worker import Trouble
from client_faults.wires import cut

ROUTER_AWAY_SECONDS = 2.0
NETWORK_CUT_SECONDS = 5.0

Play = Callable[[Stage], Awaitable[str]]
"""Breaks something and repairs it, where it does; returns notes on what else was measured."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row of the table.

    Attributes:
        name: For people.
        play: What happens.
        stand_in: Whether one of the workers is the stand-in.
        aim_seconds: What the slowest sample should not exceed; None where waiting is the point.
        aim_after_seconds: The same, from the moment on when the router could answer again; None where it always could.
    """

    name: str
    play: Play
    stand_in: bool = False
    aim_seconds: float | None = None
    aim_after_seconds: float | None = None

    @property
    def key(self) -> str:
        """The name in the result."""
        return self.name.replace(" ", "_").replace("'", "").lower()

    @property
    def promise(self) -> str:
        """The first line of the docstring of what happens."""
        return (self.play.__doc__ or "").strip().splitlines()[0]


async def nothing(_: Stage) -> str:
    """For comparison."""
    return ""


async def kill_a_worker(stage: Stage) -> str:
    """The router sends what it had to another worker."""
    stage.fleet.workers[0].kill()
    return ""


async def stop_a_worker(stage: Stage) -> str:
    """What it has is asked of another worker beside it."""
    stage.fleet.workers[0].signal(signal.SIGSTOP)
    return ""


async def drop_a_workers_packets(stage: Stage) -> str:
    """The router holds what it had there; the client asks again beside it."""
    with cut(stage.fleet.workers[0].port):
        await stage.traffic.reaches(1.0)
    return ""


def trouble(kind: Trouble) -> Play:
    """The stand-in does that to every request, from now on."""

    async def play(stage: Stage) -> str:
        """Another worker is asked until one has the score."""
        if stage.stand_in is None:
            raise ValueError("the fault needs the stand-in")
        stage.stand_in.trouble = kind
        await stage.traffic.reaches(1.0)
        return f"{stage.stand_in.troubled} requests met it"

    return play


async def restart_the_router(stage: Stage) -> str:
    """Samples wait for it, and for its workers."""
    router = stage.fleet.router
    router.kill()
    await asyncio.sleep(ROUTER_AWAY_SECONDS)
    async with stage.first_answer.watched():
        await router.start()
        await stage.fleet.join()
    return f"away for {ROUTER_AWAY_SECONDS:g} s and its start"


async def kill_all_workers(stage: Stage) -> str:
    """Samples wait until a worker is back."""
    for worker in stage.fleet.workers:
        worker.kill()
    await asyncio.sleep(stage.outage_seconds)
    async with stage.first_answer.watched():
        await asyncio.gather(*(worker.start() for worker in stage.fleet.workers))
    return f"none for {stage.outage_seconds:g} s and their start"


async def move_with_another_key(stage: Stage) -> str:
    """The client looks the pool up again and follows it."""
    router = stage.fleet.router
    router.kill()
    router.move()
    stage.fleet.renew_key()
    async with stage.first_answer.watched():
        await router.start()
        await stage.fleet.join()
    stage.tell_address()
    return ""


async def cut_the_network(stage: Stage) -> str:
    """Samples wait until packets pass again."""
    with cut(stage.fleet.router.port):
        await asyncio.sleep(NETWORK_CUT_SECONDS)
    async with stage.first_answer.watched():
        pass
    return f"cut for {NETWORK_CUT_SECONDS:g} s"


async def cancel_the_client(stage: Stage) -> str:
    """What was handed out counts, the rest is scored by the next client, and nothing twice."""
    stage.traffic.cancel_client()
    await stage.traffic.reaches(1.0)
    return f"{stage.traffic.reports[0].cancelled} were in flight"


FAULTS = (
    Fault(name="nothing", play=nothing),
    Fault(name="worker killed", play=kill_a_worker, aim_seconds=1.0),
    Fault(name="worker hangs", play=stop_a_worker),
    Fault(name="worker's packets dropped", play=drop_a_workers_packets, aim_seconds=1.0),
    Fault(name="worker answers 500", play=trouble("http_500"), stand_in=True),
    Fault(name="worker answers 429", play=trouble("http_429"), stand_in=True),
    Fault(name="worker sends invalid responses", play=trouble("invalid_response"), stand_in=True),
    Fault(name="worker answers slowly", play=trouble("slow"), stand_in=True),
    Fault(name="router restarted", play=restart_the_router, aim_after_seconds=1.0),
    Fault(name="all workers gone", play=kill_all_workers, aim_after_seconds=1.0),
    Fault(name="URL and key changed", play=move_with_another_key, aim_after_seconds=1.0),
    Fault(name="network cut", play=cut_the_network, aim_after_seconds=1.0),
    Fault(name="client cancelled", play=cancel_the_client),
)
