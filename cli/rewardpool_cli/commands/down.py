"""`rewardpool down`: a pool of this machine stops."""

from typing import Annotated

import typer

from rewardpool_cli import screens
from rewardpool_cli.options import ItsManifest, Namespace, pools_here
from rewardpool_cli.targets import pool_meant
from rewardpool_local import commands
from rewardpool_local.folder import PoolFolder

OnlyPoolName = Annotated[
    str | None,
    typer.Argument(
        metavar="[POOL]", help="NAME or NAMESPACE/NAME; may be left out if there is one.", autocompletion=pools_here
    ),
]


def down(name: OnlyPoolName = None, file: ItsManifest = None, namespace: Namespace = None) -> None:
    """Stop a pool of this machine: requests in flight finish, no process is left.

    Example: rewardpool down quickstart
    """
    folder = pool_meant(name, file, namespace)
    stop(folder)
    screens.out.print(f"{folder.pool_key} is down")


def stop(folder: PoolFolder) -> None:
    """Stop the pool, with its progress on standard error."""
    commands.down(folder, on_progress=lambda line: screens.err.print(line, soft_wrap=True))
