"""`rewardpool restart`: new workers of the same spec, as a rollout."""

import asyncio
import os
from datetime import UTC, datetime

from rewardpool_api import names
from rewardpool_api.times import rfc3339
from rewardpool_cli.errors import exit_unless
from rewardpool_cli.options import Context, Local, Namespace, NoWait, PoolName
from rewardpool_cli.progress import follow_change
from rewardpool_cli.targets import Target, Where, locate, pool_here
from rewardpool_local import commands


def restart(
    name: PoolName,
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
    no_wait: NoWait = False,
) -> None:
    """Replace all workers by new ones of the same spec, as a rollout: no request is lost.

    A pool of this machine takes the code that its function has now.

    Example: rewardpool restart rl/helpfulness
    """
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    if target.is_local:
        folder = pool_here(name, namespace)
        change = commands.restart(folder, os.environ)
        if not no_wait:
            follow_change(change, folder, change.wanted.spec.start_seconds)
        return
    exit_unless(asyncio.run(_restart(target, waits=not no_wait)))


async def _restart(target: Target, *, waits: bool) -> bool:
    from rewardpool_cli.cluster import connect  # slow to import
    from rewardpool_cli.waiting import follow_replacement
    from rewardpool_kube.resources import POOLS

    async with connect(target) as cluster:
        pool = await cluster.pool(str(target.name))
        patch = {"metadata": {"annotations": {names.ANNOTATION_RESTARTED_AT: rfc3339(datetime.now(UTC))}}}
        await cluster.kube.merge(POOLS, cluster.namespace, pool.metadata.name, patch, is_strict=True)
        return await follow_replacement(cluster, pool, waits=waits, what="its workers are new ones")
