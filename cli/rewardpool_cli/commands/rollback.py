"""`rewardpool rollback`: an earlier revision of a pool serves again."""

import asyncio
import json
from typing import Annotated, Any

import typer

from rewardpool_api import RewardPool, names
from rewardpool_cli import screens
from rewardpool_cli.errors import RefusedError, exit_unless
from rewardpool_cli.options import Context, Local, Namespace, NoWait, PoolName
from rewardpool_cli.progress import follow_change
from rewardpool_cli.targets import Target, Where, locate, pool_here
from rewardpool_local import commands
from rewardpool_local.folder import PoolFolder


def rollback(
    name: PoolName,
    to_revision: Annotated[
        str | None, typer.Option(help="Default: the stable revision, or the one before it if that one serves.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
    no_wait: NoWait = False,
) -> None:
    """Give a pool the model, engine and worker parts of an earlier revision's spec again.

    A pool of this machine gets the code that its function had then, too.

    Example: rewardpool rollback rl/helpfulness
    """
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    if target.is_local:
        _roll_back_here(pool_here(name, namespace), to_revision, waits=not no_wait)
        return
    exit_unless(asyncio.run(_roll_back(target, to_revision, waits=not no_wait)))


def _roll_back_here(folder: PoolFolder, to_revision: str | None, *, waits: bool) -> None:
    pool = folder.read_pool() if folder.is_supervised() else None
    if pool is None:
        raise commands.NotRunningError(f"{folder.pool_key} does not run; start it with `rewardpool up`")
    revision = to_revision or earlier_revision(pool)
    change = commands.roll_back(folder, revision)
    if change is not None:
        screens.err.print(
            f"{pool.key} gets spec and code of revision {revision}; undo the edit too, or the next `rewardpool up`"
            " brings it back",
            markup=False,
            soft_wrap=True,
        )
    if waits:
        follow_change(change, folder, pool.spec.start_seconds, what=f"serves by revision {revision}")


async def _roll_back(target: Target, to_revision: str | None, *, waits: bool) -> bool:
    from rewardpool_cli.cluster import connect  # slow to import
    from rewardpool_cli.waiting import follow_replacement
    from rewardpool_kube.resources import DEPLOYMENTS, POOLS

    async with connect(target) as cluster:
        pool = await cluster.pool(str(target.name))
        selector = f"{names.LABEL_POOL}={pool.metadata.name},{names.LABEL_REVISION}"
        deployments = await cluster.kube.list(DEPLOYMENTS, cluster.namespace, selector=selector)
        revisions = {item["metadata"]["labels"][names.LABEL_REVISION]: item for item in deployments}
        revision = to_revision or earlier_revision(pool)
        if revision not in revisions:
            kept = ", ".join(sorted(revisions)) or "none"
            raise RefusedError(f"revision {revision} of {pool.key} is not kept any more; there are: {kept}")
        raw = await cluster.kube.get(POOLS, cluster.namespace, pool.metadata.name) or {}
        patch = rollback_patch(raw, revisions[revision])
        await cluster.kube.edit(POOLS, cluster.namespace, pool.metadata.name, patch)
        screens.err.print(
            f"{pool.key} gets the spec of revision {revision}; where its manifest is kept, change it there too",
            markup=False,
            soft_wrap=True,
        )
        return await follow_replacement(cluster, pool, waits=waits, what=f"revision {revision} serves")


def earlier_revision(pool: RewardPool) -> str:
    """The revision to go back to.

    Raises:
        RefusedError: there is none.
    """
    status, rollout = pool.status, pool.status.rollout
    if rollout is None:
        raise RefusedError(f"the status of {pool.key} names no revisions: no operator that knows them looked at it yet")
    found = (
        rollout.stable_revision
        if rollout.stable_revision not in (None, status.current_revision)
        else rollout.previous_revision
    )
    if found is None:
        raise RefusedError(f"{pool.key} has served with no other revision than {status.current_revision}")
    return found


def rollback_patch(pool: dict[str, Any], deployment: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that gives a pool the spec's parts of a revision, unless it was changed in the meantime.

    Raises:
        RefusedError: the revision does not say what it was rendered from, or the pool's spec says so already.
    """
    from rewardpool_cli.cluster import operations  # slow to import

    annotations = deployment["metadata"].get("annotations") or {}
    revision = deployment["metadata"]["labels"][names.LABEL_REVISION]
    if names.ANNOTATION_SPEC not in annotations:
        raise RefusedError(f"revision {revision} does not say what it was rendered from: an older operator made it")
    parts = json.loads(annotations[names.ANNOTATION_SPEC])
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": pool["metadata"]["resourceVersion"]}
    changes = operations(pool["spec"], parts, path="/spec", keys=names.REVISION_PARTS)
    return [version, *changes, *_restart_undone(pool, deployment)]


def _restart_undone(pool: dict[str, Any], deployment: dict[str, Any]) -> list[dict[str, Any]]:
    # The time of the last restart is part of what a revision was made of; without it, this would be one more.
    found = pool["metadata"].get("annotations") or {}
    template = deployment["spec"]["template"]["metadata"].get("annotations") or {}
    before, after = found.get(names.ANNOTATION_RESTARTED_AT), template.get(names.ANNOTATION_RESTARTED_AT)
    path = f"/metadata/annotations/{names.ANNOTATION_RESTARTED_AT.replace('/', '~1')}"
    if before == after:
        return []
    if after is None:
        return [{"op": "remove", "path": path}]
    whole = [] if found else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    return [*whole, {"op": "add", "path": path, "value": after}]
