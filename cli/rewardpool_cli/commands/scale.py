"""`rewardpool scale`: another number of replicas."""

import asyncio
from typing import Annotated

import typer

from rewardpool_api import RewardPool
from rewardpool_cli.errors import RefusedError, exit_unless
from rewardpool_cli.options import Context, Local, Namespace, NoWait, PoolName
from rewardpool_cli.program import program
from rewardpool_cli.progress import follow_change
from rewardpool_cli.targets import Target, Where, locate, pool_here
from rewardpool_local import commands


def scale(
    name: PoolName,
    replicas: Annotated[int, typer.Argument(min=0, max=10_000, help="How many.")],
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
    no_wait: NoWait = False,
) -> None:
    """Change the number of replicas of a running pool; what is in flight finishes.

    Example: rewardpool scale quickstart 3
    """
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    if not target.is_local:
        exit_unless(asyncio.run(_scale_in_cluster(target, replicas, waits=not no_wait)))
        return
    folder = pool_here(target.name, target.namespace)
    change = commands.scale(folder, replicas)
    if not no_wait:
        follow_change(change, folder, change.wanted.spec.start_seconds)


async def _scale_in_cluster(target: Target, replicas: int, *, waits: bool) -> bool:
    from rewardpool_cli.cluster import connect  # slow to import
    from rewardpool_cli.waiting import follow
    from rewardpool_kube.resources import POOLS

    async with connect(target) as cluster:
        pool = await cluster.pool(str(target.name))
        refuse(pool, replicas)
        name = pool.metadata.name
        patch = {"spec": {"replicas": replicas}}
        await cluster.kube.merge(POOLS, cluster.namespace, name, patch, subresource="scale", is_strict=True)
        return not waits or await follow(cluster, name, what=f"{replicas} replicas")


def refuse(pool: RewardPool, replicas: int) -> None:
    """Refuse a number that would not hold.

    Raises:
        RefusedError: something else decides the number.
    """
    scaling = pool.spec.autoscaling
    if scaling is not None and not scaling.is_external:
        raise RefusedError(
            f"{pool.key} is scaled by {scaling.named}, which would undo it: change"
            " spec.autoscaling.minReplicas and maxReplicas instead, or take spec.autoscaling out of the manifest;"
            f" {program()} explain {pool.key} says why it has the size it has"
        )
    if scaling is not None and not scaling.min_replicas <= replicas <= scaling.max_replicas:
        raise RefusedError(
            f"{replicas} is outside the bounds {scaling.min_replicas} to {scaling.max_replicas} of spec.autoscaling"
        )
    if pool.spec.suspend:
        raise RefusedError(f"{pool.key} is suspended, and stays at zero: set spec.suspend to false first")
