"""Nulls in a pool's `podTemplate`s that would remove a field and remove none: the pool's Degraded names them.

`kubectl apply` takes nulls out of a custom resource, and keeps in an annotation what it was given; other clients have
the API server store them. One manifest should make one pod, so a null says nothing (`merge.py`). Nor is it worth a word
where nothing is rendered that it could remove: charts write many of those.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

from rewardpool_api import RewardPool
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manifests.merge import REMOVED

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
MOST: Final = 16

Path = tuple[str | int, ...]


def ignored_nulls(pool: RewardPool, render: Callable[[RewardPool], Object]) -> str | None:
    """Return what to do about nulls of a pool, with their paths; None where none could remove anything."""
    paths = list(_nulls(pool))
    if not paths:
        return None
    as_it_is = render(pool)
    found = [_written(path) for path in paths if render(_without(pool, path)) != as_it_is]
    if not found:
        return None
    one = f"a null removes nothing, since kubectl apply does not send it: {', '.join(found)}"
    return f"{one}; to remove the field write {{$patch: delete}} in its place"


def _nulls(pool: RewardPool) -> Iterator[Path]:
    applied = _applied(pool.metadata.annotations.get(LAST_APPLIED, ""))
    parts = {"worker": pool.spec.worker, "router": pool.spec.router, "gateway": pool.spec.gateway}
    for part, spec in parts.items():
        stored = {} if spec is None else spec.pod_template
        own = list(_nulls_of(stored, ()))[:MOST]
        # Somebody may have changed the pool since by another client than the one that wrote the annotation.
        lost = [
            path
            for path in _nulls_of(_at(applied, ("spec", part, "podTemplate")), ())
            if path and path not in own and _at(stored, path) is None and isinstance(_at(stored, path[:-1]), dict)
        ]
        yield from (("spec", part, "podTemplate", *path) for path in [*own, *lost[:MOST]])


def _applied(annotation: str) -> Any:
    """Return what `kubectl apply` was given; None where that cannot be read, or has no null."""
    if "null" not in annotation:
        return None
    try:
        return json.loads(annotation)
    except (ValueError, RecursionError):
        return None


def _nulls_of(value: Any, place: Path) -> Iterator[Path]:
    if isinstance(value, dict | list):
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            if one is None:
                yield (*place, name)
            else:
                yield from _nulls_of(one, (*place, name))


def _at(value: Any, place: Path) -> Any:
    for name in place:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and isinstance(name, int) and name < len(value):
            value = value[name]
        else:
            return None
    return value


def _without(pool: RewardPool, path: Path) -> RewardPool:
    """Return the pool with the field removed by the spelling that every client keeps."""
    part, *inner = str(path[1]), *path[3:]
    spec = getattr(pool.spec, part)
    template = deepcopy(spec.pod_template)
    _at(template, tuple(inner[:-1]))[inner[-1]] = dict(REMOVED)
    changed = pool.spec.model_copy(update={part: spec.model_copy(update={"pod_template": template})})
    return pool.model_copy(update={"spec": changed})


def _written(path: Path) -> str:
    return "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in path).lstrip(".")
