"""`rewardpool explain`: why a pool is not ready, or has the size it has, and what to do next."""

import asyncio
import json
import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from rewardpool_cli import screens, tables
from rewardpool_cli.errors import CommandError
from rewardpool_cli.options import AsJson, Context, Local, Namespace, PoolName
from rewardpool_cli.targets import Target, Where, locate, pool_here

if TYPE_CHECKING:
    from rewardpool_cli.explain import Evidence, Explanation

_MARKS = {"problem": ("✗", "red"), "waiting": ("…", "yellow"), "note": ("·", "dim")}


def explain(
    name: PoolName,
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
    as_json: AsJson = False,
) -> None:
    """Say in words why a pool is not ready, or has the size it has, and what to do next. With its last changes of size.

    Example: rewardpool explain rl/helpfulness
    """
    from rewardpool_cli import explain as explaining  # slow to import

    target = locate(name, Where(namespace=namespace, context=context, local=local))
    evidence = _of_this_machine(target) if target.is_local else asyncio.run(_of_cluster(target))
    found = explaining.explain(evidence)
    if as_json:
        scaling = evidence.pool.status.scaling
        document = {
            "pool": evidence.pool.key,
            "explanations": [asdict(item) for item in found],
            "scaling": scaling.model_dump(mode="json", by_alias=True, exclude_none=True) if scaling else None,
        }
        typer.echo(json.dumps(document, indent=2))
        return
    show(evidence, found)


async def _of_cluster(target: Target) -> "Evidence":
    from rewardpool_cli.cluster import connect

    async with connect(target) as cluster:
        return await cluster.evidence(str(target.name))


def _of_this_machine(target: Target) -> "Evidence":
    from rewardpool_cli.explain import Evidence

    folder = pool_here(target.name, target.namespace)
    pool = folder.read_pool_as_it_is()
    if pool is None:
        raise CommandError(f"{folder.pool_key} was there a moment ago and is not a pool of this machine any more")
    return Evidence(now=datetime.now(UTC), pool=pool, is_local=True)


def show(evidence: "Evidence", found: "list[Explanation]") -> None:
    """The explanations, as text, and how the size changed."""
    has_problem = any(item.kind == "problem" for item in found)
    waiting = any(item.kind == "waiting" for item in found)
    state = "has a problem" if has_problem else "is on its way" if waiting else "is healthy"
    screens.out.print(Text.assemble((evidence.pool.key, "bold"), f" {state}"))
    for item in found:
        mark, style = _MARKS[item.kind]
        screens.out.print()
        screens.out.print(Text.assemble((f"{mark} ", style), item.what), soft_wrap=True)
        if item.said:
            quoted = textwrap.indent(item.said.strip(), "    ")
            screens.out.print(Text(quoted, style="dim"), soft_wrap=True)
        for step in item.next:
            screens.out.print(Text(f"  → {step}"), soft_wrap=True)
    scaling = evidence.pool.status.scaling
    if scaling is not None and scaling.history:
        screens.out.print()
        screens.out.print(tables.history_table(scaling.history, evidence.now))
