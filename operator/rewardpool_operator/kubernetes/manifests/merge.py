"""`podTemplate` over the rendered one, as `kubectl patch --type=strategic` would merge it.

Maps merge field by field. Of fields that exclude each other, such as the sources of a volume, the override's is left.
Lists whose items have a key merge item by item, so that naming the container `worker` changes that container and adds
no second one; all other lists are replaced. `$patch: delete` removes the field, or the item of a list, in which it is.

A null says nothing: `kubectl apply` takes nulls out of a custom resource and other clients keep them, and one manifest
should make one pod. `nulls.py` finds them.
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


_DIRECTIVE: Final = "$patch"
REMOVED: Final = {_DIRECTIVE: "delete"}


def merged(base: Any, overrides: Any, *, field: str = "") -> Any:
    """The two laid over each other; neither is changed."""
    if isinstance(base, dict) and isinstance(overrides, dict):
        return _merged_maps(_without_replaced(base, overrides, field), overrides)
    key = MERGE_KEYS.get(field)
    if key is not None and _all_have(key, base) and _all_have(key, overrides):
        return _merged_items(base, overrides, key, field)
    return _said(overrides)


def removes(value: Any) -> bool:
    """Return whether what has this value is to be removed."""
    return isinstance(value, dict) and value.get(_DIRECTIVE) == REMOVED[_DIRECTIVE]


def _said(value: Any) -> Any:
    """Return the value without nulls and removals."""
    if isinstance(value, dict):
        return {name: _said(one) for name, one in value.items() if one is not None and not removes(one)}
    if isinstance(value, list):
        return [_said(one) for one in value if not removes(one)]
    return value


def _merged_maps(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in overrides.items():
        if removes(value):
            result.pop(name, None)
        elif value is not None:
            result[name] = merged(base[name], value, field=name) if name in base else _said(value)
    return result


def _without_replaced(base: dict[str, Any], overrides: dict[str, Any], field: str) -> dict[str, Any]:
    """The base without alternatives of what the overrides choose."""

    def is_alternative(name: str) -> bool:
        return name != "name" if field == "volumes" else name in _ALTERNATIVES.get(field, ())

    said = _said(overrides)
    chosen = {name for name in said if is_alternative(name)}
    return {name: value for name, value in base.items() if not chosen or name in chosen or not is_alternative(name)}


def _merged_items(
    base: list[dict[str, Any]], overrides: list[dict[str, Any]], key: str, field: str
) -> list[dict[str, Any]]:
    given = {item[key]: item for item in overrides}
    both = [(item, given.pop(item[key], {})) for item in base]
    result = [merged(item, override, field=field) for item, override in both if not removes(override)]
    return [*result, *_said(list(given.values()))]


def _all_have(key: str, items: Any) -> bool:
    return isinstance(items, list) and all(
        isinstance(item, dict) and isinstance(item.get(key), str | int) for item in items
    )
