"""`rewardpool rotate-key`: requests new keys of a pool in a cluster, and shows the rotation."""

import asyncio
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

import typer

from rewardpool_api import RewardPool, names
from rewardpool_api.times import rfc3339
from rewardpool_cli import screens
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.options import Context, Local, Namespace, NoWait, PoolName
from rewardpool_cli.program import program
from rewardpool_cli.targets import Target, Where, locate, pool_here

if TYPE_CHECKING:
    from rewardpool_cli.cluster import Cluster

LOOK_SECONDS: Final = 1.0
UNSEEN_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 1800.0  # workers learn a key in two minutes, routers change in some minutes


def rotate_key(
    name: PoolName,
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
    no_wait: NoWait = False,
) -> None:
    """Replace the keys of a pool by new ones while it serves: no request is lost.

    Example: rewardpool rotate-key rl/helpfulness
    """
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    if target.is_local:
        pool_here(name, namespace)
        raise RefusedError(
            f"{name} is a pool of this machine: stop it with rewardpool down, remove its key file, and start it again"
        )
    if not asyncio.run(_rotate(target, waits=not no_wait)):
        raise typer.Exit(1)


async def _rotate(target: Target, *, waits: bool) -> bool:
    from rewardpool_cli.cluster import connect  # slow to import
    from rewardpool_kube.resources import POOLS

    async with connect(target) as cluster:
        pool = await cluster.pool(str(target.name))
        request = rfc3339(datetime.now(UTC))
        patch = {"metadata": {"annotations": {names.ANNOTATION_ROTATE_KEY: request}}}
        await cluster.kube.merge(POOLS, cluster.namespace, pool.metadata.name, patch, is_strict=True)
        return await _followed(cluster, pool.metadata.name, request) if waits else True


async def _followed(cluster: "Cluster", name: str, request: str) -> bool:
    began, said = monotonic(), ""
    while True:
        pool = await cluster.pool(name)
        seconds, (is_over, words) = monotonic() - began, progress(pool, request)
        if is_over:
            screens.out.print(f"{pool.key}: {words}, after {seconds:.0f} s", markup=False)
            return True
        if words != said:
            said = words
            screens.err.print(f"{seconds:4.0f} s  {said}", markup=False, soft_wrap=True)
        unseen = pool.status.auth.rotation is None or pool.status.auth.rotation.request != request
        if seconds > (UNSEEN_SECONDS if unseen else LONGEST_SECONDS):
            screens.err.print(f"not done yet; {program()} status {pool.key} shows the rest", markup=False)
            return False
        await asyncio.sleep(LOOK_SECONDS)


def progress(pool: RewardPool, request: str) -> tuple[bool, str]:
    """Return whether the requested rotation is over, and its progress in words."""
    rotation = pool.status.auth.rotation
    if rotation is None or rotation.request != request:
        return False, "the operator has not begun yet"
    if rotation.message:
        return rotation.phase == "Done", rotation.message
    match rotation.phase:
        case "Preparing":
            return False, "workers learn the next key, as soon as their kubelets renew it"
        case "Changing":
            return False, "routers change to the new keys, one by one"
        case "Done":
            return True, "its keys are new ones"
