"""Place of a pool: on this machine or in a cluster.

In this order, the first that applies:

1. `--local` or `--cluster`.
2. `--context`, or the program's being called as kubectl's plugin: the cluster.
3. This machine, when a pool of that name was started here (without a name: when any pool was).
4. The cluster of $KUBECONFIG, of the pod this runs in, or of `~/.kube/config`, if there is one.
5. This machine.

The namespace is the one in NAMESPACE/NAME, else that of `-n`, else that of the kubeconfig's context or of the pod; on
this machine, and where none of them says, `default`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_cli.errors import CommandError, RefusedError
from rewardpool_cli.files import folder_of_file, read_pool
from rewardpool_cli.program import is_plugin
from rewardpool_kube.configuration import is_configured
from rewardpool_local.folder import PoolFolder, all_folders, folder_of

_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"  # RFC 1123; the API decides the rest


@dataclass(frozen=True, kw_only=True)
class Where:
    """Place of the pool by the user's options."""

    namespace: str | None = None
    context: str | None = None
    local: bool | None = None
    """None leaves it to the order above."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A pool, or all pools of a place."""

    name: str | None
    namespace: str | None
    """None means the place's own default."""
    context: str | None
    is_local: bool

    @property
    def key(self) -> str:
        return f"{self.namespace or 'default'}/{self.name}"

    def folder(self, environ: Mapping[str, str] = os.environ) -> PoolFolder:
        """The state folder of a pool on this machine; it need not exist."""
        return folder_of(self.key, environ)


def locate(
    name: str | None, where: Where, *, environ: Mapping[str, str] = os.environ, plugin: bool | None = None
) -> Target:
    """Decide where to look.

    Args:
        name: NAME or NAMESPACE/NAME; None for all pools.
        plugin: whether kubectl runs this program; None finds out.

    Raises:
        RefusedError: the options contradict each other, or the name is not a pool's.
    """
    if name is not None and re.fullmatch(f"({_LABEL}/)?{_LABEL}", name) is None:
        raise RefusedError(
            f"{name!r} is not the name of a pool: give NAME or NAMESPACE/NAME, of lower-case letters, digits, hyphens"
        )
    if where.namespace is not None and re.fullmatch(_LABEL, where.namespace) is None:
        raise RefusedError(
            f"--namespace {where.namespace!r} is not the name of one: give lower-case letters, digits and hyphens"
        )
    named_in, _, short = name.rpartition("/") if name else ("", "", None)
    if named_in and where.namespace not in (None, named_in):
        raise RefusedError(
            f"{name} is in namespace {named_in}, and --namespace says {where.namespace}: drop one of them"
        )
    if where.local and where.context is not None:
        raise RefusedError("--context names a cluster, and --local is this machine: drop one of them")
    target = Target(name=short, namespace=named_in or where.namespace, context=where.context, is_local=True)
    plugin = is_plugin() if plugin is None else plugin
    local = where.local
    if local is None:
        forced = plugin or where.context is not None
        local = not forced and (_was_started_here(target, environ) or not is_configured(environ))
    return Target(name=short, namespace=target.namespace, context=where.context, is_local=local)


def _was_started_here(target: Target, environ: Mapping[str, str]) -> bool:
    if target.name is None:
        folders = all_folders(environ)
        return any(target.namespace in (None, folder.path.parent.name) for folder in folders)
    return (target.folder(environ).path / names.STATE_FILE).exists()


def pool_here(name: str | None, namespace: str | None, *, environ: Mapping[str, str] = os.environ) -> PoolFolder:
    """The folder of a pool of this machine; without a name, of the only one there is.

    Raises:
        CommandError: pool not found.
        RefusedError: that is not a pool's name, or there are several and none is named.
    """
    target = locate(name, Where(namespace=namespace, local=True), environ=environ)
    folders = [each for each in all_folders(environ) if target.namespace in (None, each.path.parent.name)]
    if name is not None:
        found = [each for each in folders if each.pool_key == target.key]
        if not found:
            raise CommandError(f"there is no pool {target.key} on this machine; {_there_are(all_folders(environ))}")
        return found[0]
    if len(folders) != 1:
        where = "on this machine" if namespace is None else f"in namespace {namespace} of this machine"
        if folders:
            raise RefusedError(f"there are {len(folders)} pools {where}: name one of {_listed(folders)}")
        raise CommandError(f"there is no pool {where}; `rewardpool up -f pool.yaml` starts one")
    return folders[0]


def _there_are(folders: Sequence[PoolFolder]) -> str:
    return f"there are: {_listed(folders)}" if folders else "`rewardpool up -f pool.yaml` starts one"


def _listed(folders: Sequence[PoolFolder]) -> str:
    return ", ".join(each.pool_key for each in folders)


def pool_meant(name: str | None, file: Path | None, namespace: str | None) -> PoolFolder:
    """Return the folder of a pool of this machine that is named, or whose manifest is given.

    Raises:
        CommandError: pool not found.
        RefusedError: what was said contradicts itself, the pool is another project's, or kubectl runs this program.
    """
    from rewardpool_local.commands import other_project  # slow to import

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
    folder, project = pool_here(f"{metadata.namespace}/{metadata.name}", None), folder_of_file(file)
    if (other := other_project(folder.read_wanted(), project)) is not None:
        raise RefusedError(
            f"metadata.name: {folder.pool_key} is the pool of the manifest in {other}, and this one is in {project}:"
            f" if it is meant, give its name, {folder.pool_key}, instead of -f"
        )
    return folder


def local_pools(target: Target) -> Sequence[RewardPool]:
    """Return the named pools of this machine."""
    folders = [pool_here(target.name, target.namespace)] if target.name else all_folders(os.environ)
    found = [pool for folder in folders if (pool := folder.read_pool_as_it_is())]
    return [pool for pool in found if target.namespace in (None, pool.metadata.namespace)]
