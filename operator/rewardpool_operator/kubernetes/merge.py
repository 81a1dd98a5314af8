"""`podTemplate` over the rendered one, as `kubectl patch --type=strategic` would merge it.

Maps merge field by field and null removes a field. Of fields that exclude each other, such as the sources of a volume,
the override's is left. Lists whose items have a key merge item by item, so that naming the
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

_HANDLERS: Final = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})
_ALTERNATIVES: Final = {
    "env": frozenset({"value", "valueFrom"}),
    **dict.fromkeys(("startupProbe", "readinessProbe", "livenessProbe", "preStop", "postStart"), _HANDLERS),
}
"""Field of a pod -> those of its own fields of which there may be one. Of a volume, these are all but its name."""


def merged(base: Any, overrides: Any, *, field: str = "") -> Any:
    """The two laid over each other; neither is changed."""
    if isinstance(base, dict) and isinstance(overrides, dict):
        return _merged_maps(_without_replaced(base, overrides, field), overrides)
    key = MERGE_KEYS.get(field)
    if key is not None and _all_have(key, base) and _all_have(key, overrides):
        return _merged_items(base, overrides, key, field)
    return overrides


def _merged_maps(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in overrides.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(base[name], value, field=name) if name in base else value
    return result


def _without_replaced(base: dict[str, Any], overrides: dict[str, Any], field: str) -> dict[str, Any]:
    """The base without alternatives of what the overrides choose."""

    def is_alternative(name: str) -> bool:
        return name != "name" if field == "volumes" else name in _ALTERNATIVES.get(field, ())

    chosen = {name for name, value in overrides.items() if value is not None and is_alternative(name)}
    return {name: value for name, value in base.items() if not chosen or name in chosen or not is_alternative(name)}


def _merged_items(
    base: list[dict[str, Any]], overrides: list[dict[str, Any]], key: str, field: str
) -> list[dict[str, Any]]:
    given = {item[key]: item for item in overrides}
    result = [merged(item, given.pop(item[key]), field=field) if item[key] in given else item for item in base]
    return [*result, *given.values()]


def _all_have(key: str, items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, dict) and key in item for item in items)
