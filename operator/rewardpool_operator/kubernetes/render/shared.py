"""The objects of a pool as a whole: its keys, its mounted files, its URL."""

import base64
import json
from collections.abc import Mapping
from functools import lru_cache

from rewardpool_api import RewardPool, names
from rewardpool_api.times import rfc3339
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.credentials.keys import ANNOTATION_STEP_SINCE, KEY_COPY, Keys
from rewardpool_operator.kubernetes.render.common import files_name, metadata


def pool_host(pool: RewardPool) -> str:
    """The name under which trainers reach the routers, and for which a router's certificate is."""
    return names.router_host(pool.metadata.name, pool.metadata.namespace)


def pool_url(pool: RewardPool) -> str:
    """Return the URL at which trainers reach the routers."""
    return f"{'https' if pool.spec.router.tls else 'http'}://{pool_host(pool)}:{names.ROUTER_PORT}"


def secrets(pool: RewardPool, keys: Keys) -> list[Object]:
    """The Secrets, in the order of writing: the admin Secret says what the other one already has."""
    name = pool.metadata.name
    admin = {names.SECRET_KEY: keys.admin, names.PREVIOUS_KEY: keys.previous_admin}
    gateway = [_secret(pool, names.gateway_name(name), {names.SECRET_KEY: keys.gateway}, {})] if keys.gateway else []
    if not pool.spec.router.auth.uses_key:
        return [*gateway, _secret(pool, names.admin_secret(name), admin, _annotations(keys))]
    data = {names.SECRET_KEY: keys.pool, names.NEXT_KEY: keys.next, names.PREVIOUS_KEY: keys.previous}
    return [
        *gateway,
        _secret(pool, names.key_secret(name), data, {}),
        _secret(pool, names.admin_secret(name), {**admin, KEY_COPY: keys.in_force}, _annotations(keys)),
    ]


def _annotations(keys: Keys) -> dict[str, str]:
    handled = {names.ANNOTATION_ROTATE_KEY: keys.handled} if keys.handled else {}
    return handled | ({ANNOTATION_STEP_SINCE: rfc3339(keys.step_since)} if keys.step_since else {})


def _secret(pool: RewardPool, name: str, data: dict[str, str | None], annotations: dict[str, str]) -> Object:
    described = metadata(pool, name, names.COMPONENT_POOL)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**described, **({"annotations": annotations} if annotations else {})},
        "type": "Opaque",
        "data": {entry: base64.b64encode(key.encode()).decode() for entry, key in data.items() if key is not None},
    }


def files_config_map(namespace: str, files: Mapping[str, str]) -> Object:
    """Files for workers or routers of all pools of a namespace, immutable; see `kubernetes/mounted_files.py`."""
    return _files_config_map(namespace, tuple(sorted(files.items())))


@lru_cache(maxsize=1024)
def _files_config_map(namespace: str, files: tuple[tuple[str, str], ...]) -> Object:
    labels = {
        "app.kubernetes.io/name": "rewardpool",
        "app.kubernetes.io/part-of": "rewardpool",
        "app.kubernetes.io/managed-by": names.FIELD_MANAGER,
        "app.kubernetes.io/component": names.COMPONENT_FILES,
        names.LABEL_COMPONENT: names.COMPONENT_FILES,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": files_name(dict(files)), "namespace": namespace, "labels": labels},
        "immutable": True,
        "binaryData": dict(files),
    }


def pins_config_map(pool: RewardPool, pins: Mapping[str, str] | None = None) -> Object:
    """Return the commits of the model by revision, see `downloads.py`; none is made before there is one."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(pool, names.pins_config_map(pool.metadata.name), names.COMPONENT_POOL),
        "data": {names.PINS_FILE: json.dumps(pins or {}, sort_keys=True)},
    }
