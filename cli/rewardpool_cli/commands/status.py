"""`rewardpool status`: what a pool is doing, with its processes or pods and its conditions."""

import asyncio
import json
from typing import TYPE_CHECKING

import typer

from rewardpool_api import RewardPool, dump_manifest
from rewardpool_api.documents import write_document
from rewardpool_cli import screens, tables
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.options import AnyPoolName, AsJson, Context, Everywhere, Local, Namespace, Output, OutputForm
from rewardpool_cli.targets import Target, Where, local_pools, locate

if TYPE_CHECKING:
    from rewardpool_cli.explain import Evidence

NO_POOL = "no pool was started on this machine; `rewardpool up -f pool.yaml` starts one"


def status(
    name: AnyPoolName = None,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    context: Context = None,
    local: Local = None,
    output: OutputForm = None,
    as_json: AsJson = False,
) -> None:
    """Show a pool: its workers and its conditions; without a name, all pools of this machine or of the namespace.

    Example: rewardpool status quickstart -o yaml
    """
    if as_json and output not in (None, Output.JSON):
        raise RefusedError(f"--json is -o json, and -o says {output}: drop one of them")
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    if target.is_local:
        pools = local_pools(target)
        evidence = None
    else:
        pools, evidence = asyncio.run(_read(target, everywhere=everywhere))
    form = Output.JSON if as_json else output
    if form in (Output.JSON, Output.YAML):
        objects = [dump_manifest(pool) for pool in pools]
        shown = objects[0] if name else {"items": objects}
        typer.echo(
            json.dumps(shown, indent=2) if form is Output.JSON else write_document(shown),
            nl=form is Output.JSON,
        )
    elif form is Output.NAME:
        # What every command takes for a pool's name, wherever it is.
        typer.echo("".join(f"{pool.key}\n" for pool in pools), nl=False)
    elif form is Output.WIDE:
        screens.out.print(tables.pools_screen(pools, wide=True))
    elif evidence is not None:
        show_evidence(evidence)
    elif target.is_local and len(pools) == 1:
        screens.out.print(tables.pool_screen(pools[0], tables.processes_of(pools[0]), where="on this machine"))
    elif pools:
        screens.out.print(tables.pools_screen(pools))
    else:
        screens.out.print(
            NO_POOL if target.is_local else "there are no RewardPools in the namespace; -A looks everywhere"
        )


async def _read(target: Target, *, everywhere: bool) -> "tuple[list[RewardPool], Evidence | None]":
    from rewardpool_cli.cluster import connect  # slow to import

    async with connect(target) as cluster:
        if target.name is None:
            return await cluster.pools(everywhere=everywhere), None
        evidence = await cluster.evidence(target.name)
        return [evidence.pool], evidence


def show_evidence(evidence: "Evidence") -> None:
    """A pool of a cluster with its pods."""
    from rewardpool_cli.pods import processes_of_pods  # slow to import

    screens.out.print(tables.pool_screen(evidence.pool, processes_of_pods(evidence), where="in the cluster"))
    for what, why in evidence.unreadable.items():
        screens.err.print(f"{what}: {why}", markup=False, soft_wrap=True)
    if _has_problem(evidence.pool):
        screens.out.print(f"\nwhy, and what to do: {evidence.command('explain')}", style="dim", soft_wrap=True)


def _has_problem(pool: RewardPool) -> bool:
    ready, degraded = pool.status.condition("Ready"), pool.status.condition("Degraded")
    return ready is None or ready.status != "True" or (degraded is not None and degraded.status == "True")
