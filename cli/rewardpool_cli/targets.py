"""Where a pool is looked for: on this machine or in a cluster.

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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rewardpool_api import names
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.program import is_plugin
from rewardpool_local.folder import PoolFolder, all_folders, folder_of

_IN_POD: Final = "KUBERNETES_SERVICE_HOST"


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where the user said that the pool is."""

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

    def folder(self, environ: Mapping[str, str] = os.environ) -> PoolFolder:
        """The state folder of a pool on this machine."""
        return folder_of(f"{self.namespace or 'default'}/{self.name}", environ)


def locate(
    name: str | None, where: Where, *, environ: Mapping[str, str] = os.environ, plugin: bool | None = None
) -> Target:
    """Decide where to look.

    Args:
        name: NAME or NAMESPACE/NAME; None for all pools.
        where: what the options say.
        environ: the environment.
        plugin: whether kubectl runs this program; None finds out.

    Raises:
        RefusedError: what was said contradicts itself.
    """
    named_in, _, short = name.rpartition("/") if name else ("", "", None)
    if named_in and where.namespace not in (None, named_in):
        raise RefusedError(
            f"{name} is in namespace {named_in}, and --namespace says {where.namespace}: drop one of them"
        )
    if where.local and where.context is not None:
        raise RefusedError("--context names a cluster, and --local asks for this machine: drop one of them")
    target = Target(name=short, namespace=named_in or where.namespace, context=where.context, is_local=True)
    plugin = is_plugin() if plugin is None else plugin
    local = where.local
    if local is None:
        forced = plugin or where.context is not None
        local = not forced and (_was_started_here(target, environ) or not has_cluster(environ))
    return Target(name=short, namespace=target.namespace, context=where.context, is_local=local)


def has_cluster(environ: Mapping[str, str]) -> bool:
    """Whether credentials of a cluster are at hand."""
    if "KUBECONFIG" in environ:
        return any(Path(part).exists() for part in environ["KUBECONFIG"].split(os.pathsep) if part)
    return _IN_POD in environ or (Path.home() / ".kube" / "config").exists()


def _was_started_here(target: Target, environ: Mapping[str, str]) -> bool:
    if target.name is None:
        folders = all_folders(environ)
        return any(target.namespace in (None, folder.path.parent.name) for folder in folders)
    return (target.folder(environ).path / names.STATE_FILE).exists()
