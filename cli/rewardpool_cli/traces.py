"""`rewardpool trace`: traces of a running pool, and those that come with the package."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
import yaml
from rich.progress import track

from rewardpool_api import RewardPool
from rewardpool_cli import screens
from rewardpool_cli.errors import CommandError, RefusedError
from rewardpool_cli.options import Context, Local, Namespace, PoolName
from rewardpool_cli.status import local_pools
from rewardpool_cli.targets import Target, Where, locate
from rewardpool_simulator import builtin
from rewardpool_simulator.recording import Look, has_service_rate, recorded
from rewardpool_simulator.trace import Trace, TraceError

LOOK_SECONDS: Final = 1.0
GUESSED: Final = (
    "what one replica does was not measured yet: serviceSeconds and concurrency of the trace are guesses;"
    " put in your own"
)

trace_app = typer.Typer(no_args_is_help=True, help="Traces for `rewardpool simulate`.")


@trace_app.command("record")
def record(
    name: PoolName,
    seconds: Annotated[int, typer.Option(min=2, max=604_800, help="How long.")],
    output: Annotated[Path, typer.Option("--output", "-o", dir_okay=False, help="The file; it is replaced.")],
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
) -> None:
    """Record a running pool's load and demands into a trace that `simulate --trace FILE` replays.

    What it tells is approximate: the status says how many requests there are, not when each came.

    Example: rewardpool trace record quickstart --seconds 3600 -o monday.yaml
    """
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    pool, looks = asyncio.run(_look(target, seconds))
    try:
        made = recorded(pool, looks)
    except TraceError as error:
        raise CommandError(str(error)) from None
    output.write_text(_yaml(made), "utf-8")
    if not has_service_rate(looks[-1].status):
        screens.err.print(GUESSED, style="yellow", markup=False, soft_wrap=True)
    samples = sum(arrival.samples for arrival in made.arrivals)
    screens.out.print(f"{output}: about {samples} requests in {made.seconds:.0f} s", markup=False)


@trace_app.command("show")
def show(name: Annotated[str, typer.Argument(metavar="TRACE", help=", ".join(builtin.NAMES))]) -> None:
    """Print a trace that comes with the package, as a start for one of your own.

    Example: rewardpool trace show sync-grpo > mine.yaml
    """
    if name not in builtin.NAMES:
        raise RefusedError(f"there is no trace {name}; there are {', '.join(builtin.NAMES)}")
    typer.echo(builtin.text_of(name), nl=False)


async def _look(target: Target, seconds: int) -> tuple[RewardPool, list[Look]]:
    looks: list[Look] = []
    begun = time.monotonic()
    async with aclosing(_pools(target)) as pools:
        steps = range(int(seconds / LOOK_SECONDS) + 1)
        for step in track(steps, "recording", console=screens.err, transient=True, disable=not screens.err.is_terminal):
            await asyncio.sleep(max(0.0, begun + step * LOOK_SECONDS - time.monotonic()))
            pool = await anext(pools)
            # A bar on a terminal, and one line elsewhere.
            if not looks and not screens.err.is_terminal:
                screens.err.print(f"recording for {seconds} s")
            looks.append(Look(seconds=round(time.monotonic() - begun, 2), now=datetime.now(UTC), status=pool.status))
    return pool, looks


async def _pools(target: Target) -> AsyncGenerator[RewardPool, None]:
    """The pool as it is, as often as asked."""
    if target.is_local:
        while True:
            yield local_pools(target)[0]
    from rewardpool_cli.cluster import connect  # slow to import

    async with connect(target) as cluster:
        while True:
            yield await cluster.pool(target.name or "")


def _yaml(trace: Trace) -> str:
    return yaml.safe_dump(
        trace.model_dump(mode="json", by_alias=True, exclude_defaults=True), sort_keys=False, width=120
    )
