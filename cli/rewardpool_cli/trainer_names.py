"""The name of a pool that a trainer's client takes, `namespace/name`, of what a user may leave out of it."""

import asyncio
import os
from collections.abc import Mapping

from rewardpool_cli.targets import Where, locate, pool_here


def full_name(name: str | None, namespace: str | None, *, environ: Mapping[str, str] = os.environ) -> str:
    """`namespace/name` of the pool that a trainer is to find; without a name, of the only one of this machine.

    Raises:
        CommandError: this machine has no pool, and none is named.
        RefusedError: that is not a pool's name, or the namespace of the cluster's context cannot be read.
    """
    if name is None:
        return pool_here(None, namespace, environ=environ).pool_key
    target = locate(name, Where(namespace=namespace), environ=environ)
    if target.namespace is not None or target.is_local:
        return target.key
    from rewardpool_cli.cluster import default_namespace  # slow to import

    return f"{asyncio.run(default_namespace(None, environ))}/{target.name}"
