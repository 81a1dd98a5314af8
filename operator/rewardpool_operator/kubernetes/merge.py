"""`podTemplate` over the rendered one, as `kubectl patch --type=strategic` would merge it.

Maps merge field by field and null removes a field. Lists whose items have a key merge item by item, so that naming the
container `worker` changes that container and adds no second one; all other lists are replaced.
"""

from typing import Any, Final

MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""Field of a pod -> the key of its items, as Kubernetes declares them."""


def merged(base: Any, overrides: Any, *, field: str = "") -> Any:
    """The two laid over each other; neither is changed."""
    if isinstance(base, dict) and isinstance(overrides, dict):
        return _merged_maps(base, overrides)
    key = MERGE_KEYS.get(field)
    if key is not None and _all_have(key, base) and _all_have(key, overrides):
        return _merged_items(base, overrides, key)
    return overrides


def _merged_maps(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in overrides.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(base[name], value, field=name) if name in base else value
    return result


def _merged_items(base: list[dict[str, Any]], overrides: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    given = {item[key]: item for item in overrides}
    result = [merged(item, given.pop(item[key])) if item[key] in given else item for item in base]
    return [*result, *given.values()]


def _all_have(key: str, items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, dict) and key in item for item in items)
