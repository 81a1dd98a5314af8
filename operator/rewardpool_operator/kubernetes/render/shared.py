"""The objects of a pool as a whole: its keys, its mounted files, its URL."""

import base64
from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_operator.kubernetes.client import Object
from rewardpool_operator.kubernetes.render.common import Keys, metadata, uses_key
from rewardpool_worker.mounted import mounted_files

KEY_COPY: Final = "data-plane-key"
"""Entry of the admin Secret with a copy of the pool's key: a deleted key Secret comes back with the key that running
workers and routers know, also when the operator was away."""


def pool_url(pool: RewardPool) -> str:
    """Where trainers reach the routers."""
    return f"http://{names.router_name(pool.metadata.name)}.{pool.metadata.namespace}.svc:{names.ROUTER_PORT}"


def secrets(pool: RewardPool, keys: Keys) -> list[Object]:
    """The Secrets. Applied only where an entry is missing: a key that is there is never changed."""
    name = pool.metadata.name
    admin = {names.SECRET_KEY: keys.admin, **({KEY_COPY: keys.pool} if uses_key(pool) else {})}
    entries = {names.admin_secret(name): admin}
    if uses_key(pool):
        entries[names.key_secret(name)] = {names.SECRET_KEY: keys.pool}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(pool, secret, names.COMPONENT_POOL),
            "type": "Opaque",
            "data": {entry: base64.b64encode(key.encode()).decode() for entry, key in data.items()},
        }
        for secret, data in entries.items()
    ]


def files_config_map(pool: RewardPool) -> Object:
    """The mounted files. Processes read them once, so new files change nothing that runs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(pool, names.files_config_map(pool.metadata.name), names.COMPONENT_POOL),
        "data": mounted_files(),
    }
