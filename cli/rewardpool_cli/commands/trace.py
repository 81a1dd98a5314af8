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
from rewardpool_cli.targets import Target, Where, local_pools, locate
from rewardpool_simulator import builtin
from rewardpool_simulator.recording import StatusSnapshot, has_service_rate, trace_from
from rewardpool_simulator.trace import Trace, TraceError

PERIOD_SECONDS: Final = 1.0
GUESSED: Final = (
    "the pool has no measured service rate yet: serviceSeconds and concurrency of the trace are guesses;"
    " edit them in the file"
)

app = typer.Typer(no_args_is_help=True, help="Traces for `rewardpool simulate`.")


@app.command("record")
def record(
    name: PoolName,
    seconds: Annotated[int, typer.Option(min=2, max=604_800, help="Seconds to record.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", dir_okay=False, help="Trace file to write; an existing one is replaced.")
    ],
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
) -> None:
    """Record a running pool's load and demands into a trace that `simulate --trace FILE` replays.

    The trace is approximate: the status has the number of requests, not the time of each.

    Example: rewardpool trace record quickstart --seconds 3600 -o monday.yaml
    """
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    pool, snapshots = asyncio.run(_observe(target, seconds))
    try:
        made = trace_from(pool, snapshots)
    except TraceError as error:
        raise CommandError(str(error)) from None
    output.write_text(_yaml(made), "utf-8")
    if not has_service_rate(snapshots[-1].status):
        screens.err.print(GUESSED, style="yellow", markup=False, soft_wrap=True)
    samples = sum(arrival.samples for arrival in made.arrivals)
    screens.out.print(f"{output}: about {samples} requests in {made.seconds:.0f} s", markup=False)


@app.command("show")
def show(name: Annotated[str, typer.Argument(metavar="TRACE", help=", ".join(builtin.NAMES))]) -> None:
    """Print a trace that comes with the package, as a start for one of your own.

    Example: rewardpool trace show sync-grpo > mine.yaml
    """
    if name not in builtin.NAMES:
        raise RefusedError(f"{name}: expected one of {', '.join(builtin.NAMES)}")
    typer.echo(builtin.trace_text(name), nl=False)


async def _observe(target: Target, seconds: int) -> tuple[RewardPool, list[StatusSnapshot]]:
    snapshots: list[StatusSnapshot] = []
    begun = time.monotonic()
    async with aclosing(_pools(target)) as pools:
        steps = range(int(seconds / PERIOD_SECONDS) + 1)
        for step in track(steps, "recording", console=screens.err, transient=True, disable=not screens.err.is_terminal):
            await asyncio.sleep(max(0.0, begun + step * PERIOD_SECONDS - time.monotonic()))
            pool = await anext(pools)
            # A bar on a terminal, and one line elsewhere.
            if not snapshots and not screens.err.is_terminal:
                screens.err.print(f"recording for {seconds} s")
            snapshots.append(
                StatusSnapshot(seconds=round(time.monotonic() - begun, 2), now=datetime.now(UTC), status=pool.status)
            )
    return pool, snapshots


async def _pools(target: Target) -> AsyncGenerator[RewardPool, None]:
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
