"""`rewardpool down` and `delete`: a pool of this machine stops, and what is kept of it goes."""

from pathlib import Path
from typing import Annotated

import typer

from rewardpool_cli import screens
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.files import read_pool
from rewardpool_cli.options import Namespace, pools_here
from rewardpool_cli.program import is_plugin
from rewardpool_cli.targets import pool_here
from rewardpool_local import commands
from rewardpool_local.folder import AlreadyRunningError, PoolFolder

OnlyPoolName = Annotated[
    str | None,
    typer.Argument(
        metavar="[POOL]", help="NAME or NAMESPACE/NAME; may be left out if there is one.", autocompletion=pools_here
    ),
]
ItsManifest = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="Its manifest, instead of its name; - is standard input."),
]


def down(name: OnlyPoolName = None, file: ItsManifest = None, namespace: Namespace = None) -> None:
    """Stop a pool of this machine: requests in flight finish, no process is left.

    Example: rewardpool down quickstart
    """
    folder = _meant(name, file, namespace)
    _stop(folder)
    screens.out.print(f"{folder.pool_key} is down")


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
    folder = _meant(name, file, namespace)
    if now and folder.is_supervised():
        _stop(folder)
    try:
        commands.delete(folder)
    except AlreadyRunningError:
        raise RefusedError(
            f"{folder.pool_key} still runs: stop it with `rewardpool down {folder.pool_key}`, or say --now"
        ) from None
    screens.out.print(f"{folder.pool_key} is deleted")


def _stop(folder: PoolFolder) -> None:
    commands.down(folder, on_progress=lambda line: screens.err.print(line, soft_wrap=True))


def _meant(name: str | None, file: Path | None, namespace: str | None) -> PoolFolder:
    if is_plugin():
        raise RefusedError(
            "this is for pools of this machine: `kubectl delete rewardpool NAME` deletes one of the cluster, and"
            " `kubectl rewardpool scale NAME 0` stops its workers"
        )
    if file is None:
        return pool_here(name, namespace)
    if name is not None:
        raise RefusedError(f"-f says which pool, and so does {name}: drop one of them")
    metadata = read_pool(file).metadata
    if namespace not in (None, metadata.namespace):
        raise RefusedError(
            f"metadata.namespace is {metadata.namespace}, and --namespace says {namespace}: drop one of them"
        )
    return pool_here(f"{metadata.namespace}/{metadata.name}", None)
