"""`rewardpool top`: replicas and load of pools, refreshed on the screen."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rewardpool_api import RewardPool
from rewardpool_cli import screens, tables
from rewardpool_cli.options import AnyPoolName, AsJson, Context, Everywhere, Local, Namespace
from rewardpool_cli.targets import Target, Where, local_pools, locate
from rewardpool_local.folder import folder_of

if TYPE_CHECKING:
    import aiohttp

LOOK_SECONDS = 2.0
MAX_MEASURED = 20  # every router of each is asked through the API server
METRICS_SECONDS = 1.0
EMPTY_LINES = 4  # titles and the line below


def top(
    name: AnyPoolName = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    context: Context = None,
    local: Local = None,
    as_json: AsJson = False,
) -> None:
    """Show replicas and load of pools, the busiest first, every two seconds until interrupted.

    Samples per second are shown where the routers can be asked: in a cluster that takes the right to get pods/proxy.

    Example: rewardpool top -n rl --once
    """
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    looks = _looks_here(target) if target.is_local else _looks_at_cluster(target, everywhere=everywhere)
    asyncio.run(_once(looks, as_json=as_json) if once or as_json else _live(looks))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One pool at one look."""

    pool: str
    ready: int
    desired: int
    starting: int
    draining: int
    in_flight: int | None
    """Requests at workers; None while the routers' metrics are missing."""
    waiting: int | None
    samples_per_second: float | None
    tokens_in_flight: int | None
    """None where no job says how long its samples are, as for the next two."""
    tokens_waiting: int | None
    tokens_per_second: float | None
    state: str


def row_of(pool: RewardPool, samples_per_second: float | None) -> Row:
    """Return the row of a pool's status."""
    status = pool.status
    load = status.load
    tokens = load.tokens_per_request if load else None
    return Row(
        pool=pool.key,
        ready=status.ready_replicas,
        desired=screens.wanted_replicas(pool),
        starting=max(0, status.replicas - status.ready_replicas),
        draining=status.draining_replicas,
        in_flight=load.in_flight if load else None,
        waiting=load.waiting if load else None,
        samples_per_second=samples_per_second,
        tokens_in_flight=load.tokens_in_flight if load else None,
        tokens_waiting=load.tokens_waiting if load else None,
        tokens_per_second=None if tokens is None or samples_per_second is None else samples_per_second * tokens,
        state=tables.state_of(pool).plain,
    )


Look = Sequence[Row]


async def _looks_here(target: Target) -> AsyncGenerator[Look, None]:
    import aiohttp  # slow to import

    from rewardpool_cli.rates import Rates

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=METRICS_SECONDS)) as session:
        rates_here = Rates(partial(_requests_here, session), limit=MAX_MEASURED)
        while True:
            pools = local_pools(target)
            rates = await rates_here.measure(pools)
            yield [row_of(pool, rates.get(pool.key)) for pool in pools]
            await asyncio.sleep(LOOK_SECONDS)


async def _requests_here(session: "aiohttp.ClientSession", pool: RewardPool) -> float | None:
    """Requests that the router of a pool on this machine counts; None where it does not say."""
    from aiohttp import ClientError  # slow to import

    from rewardpool_cli.rates import requests_in

    url = folder_of(pool.key, os.environ).read_metrics_url() if pool.status.url else None
    if url is None:
        return None
    try:
        async with session.get(f"{url}/metrics") as response:
            response.raise_for_status()
            return requests_in(await response.text())
    except (ClientError, TimeoutError, ValueError):
        return None


async def _looks_at_cluster(target: Target, *, everywhere: bool) -> AsyncGenerator[Look, None]:
    from rewardpool_cli.cluster import connect  # slow to import
    from rewardpool_cli.rates import Rates
    from rewardpool_cli.throughput import requests_of

    async with connect(target) as cluster:
        throughput = Rates(partial(requests_of, cluster), limit=MAX_MEASURED)
        while True:
            pools = [await cluster.pool(target.name)] if target.name else await cluster.pools(everywhere=everywhere)
            rates = await throughput.measure(pools)
            yield [row_of(pool, rates.get(pool.key)) for pool in pools]
            await asyncio.sleep(LOOK_SECONDS)


async def _once(looks: AsyncGenerator[Look, None], *, as_json: bool) -> None:
    # The second look: a rate takes two.
    async with aclosing(looks):
        await anext(looks)
        rows = await anext(looks)
    if as_json:
        typer.echo(json.dumps({"pools": [asdict(row) for row in busiest_first(rows)]}, indent=2))
    else:
        screens.out.print(screen(rows, height=None))


async def _live(looks: AsyncGenerator[Look, None]) -> None:
    """Until interrupted: one screen that is drawn anew on a terminal, one table after the other elsewhere."""
    async with aclosing(looks):
        if not screens.out.is_terminal:
            async for rows in looks:
                screens.out.print(screen(rows, height=None), "")
            return
        with Live(console=screens.out, auto_refresh=False, screen=True) as live:
            async for rows in looks:
                live.update(screen(rows, height=screens.out.height), refresh=True)


def busiest_first(rows: Look) -> list[Row]:
    """By what waits, then by what is in flight; pools without figures last."""
    return sorted(rows, key=lambda row: (-(row.waiting or 0), -(row.in_flight or 0), row.pool))


def screen(rows: Look, *, height: int | None) -> RenderableType:
    """The table, cut to the screen's height."""
    room = len(rows) if height is None else max(1, height - EMPTY_LINES)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("pool", no_wrap=True)
    with_tokens = any(row.tokens_waiting is not None for row in rows)
    of_tokens = ("tokens in flight", "tokens waiting", "tokens/s") if with_tokens else ()
    for title in ("ready", "starting", "draining", "in flight", "waiting", "samples/s", *of_tokens):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for row in busiest_first(rows)[:room]:
        table.add_row(
            row.pool,
            Text(f"{row.ready}/{row.desired}", style="" if row.ready >= row.desired else "yellow"),
            *(_count(number) for number in (row.starting, row.draining)),
            *("?" if number is None else str(number) for number in (row.in_flight, row.waiting)),
            "?" if row.samples_per_second is None else f"{row.samples_per_second:.1f}",
            *(_tokens(row) if with_tokens else ()),
            Text(row.state),
        )
    if not rows:
        return Text("no pools")
    return table if room >= len(rows) else Group(table, Text(f"… and {len(rows) - room} pools with less to do"))


def _tokens(row: Row) -> list[str]:
    figures = (row.tokens_in_flight, row.tokens_waiting, row.tokens_per_second)
    return ["" if figure is None else f"{figure:.0f}" for figure in figures]


def _count(number: int) -> str:
    return str(number) if number else ""
