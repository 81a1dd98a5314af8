"""`rewardpool delete`: what a stopped pool left on this machine goes."""

from typing import Annotated

import typer

from rewardpool_cli import screens
from rewardpool_cli.commands.down import stop
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.options import ItsManifest, Namespace, pools_here
from rewardpool_cli.targets import pool_meant
from rewardpool_local import commands
from rewardpool_local.folder import AlreadyRunningError


def delete(
    name: Annotated[
        str | None, typer.Argument(metavar="[POOL]", help="NAME or NAMESPACE/NAME.", autocompletion=pools_here)
    ] = None,
    file: ItsManifest = None,
    namespace: Namespace = None,
    now: Annotated[bool, typer.Option("--now", help="If it still runs, stop it first, as `down` does.")] = False,
) -> None:
    """Delete what a stopped pool left on this machine: its status, its keys, its logs.

    A pool that still runs is refused, unless with --now.

    Example: rewardpool delete quickstart
    """
    if name is None and file is None:
        raise RefusedError("name the pool to delete, or give its manifest with -f")
    folder = pool_meant(name, file, namespace)
    if now and folder.is_supervised():
        stop(folder)
    try:
        commands.delete(folder)
    except AlreadyRunningError:
        raise RefusedError(
            f"{folder.pool_key} still runs: stop it with `rewardpool down {folder.pool_key}`, or say --now"
        ) from None
    screens.out.print(f"{folder.pool_key} is deleted")
