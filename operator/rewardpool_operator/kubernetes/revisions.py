"""Choice of a pool's present revision: what runs stays, until the pool itself needs another. Pure.

Two operators render one spec differently: another default image, other mounted files, another flag. So the template
alone cannot tell a changed pool from an upgraded operator. A revision's Deployment has what of the pool it was rendered
from, and as long as the pool says the same, that revision is the present one, as it was rendered then. What today's
operator would make instead is offered (`difference`), and taken when the pool asks: by a restart or a changed spec.

`drainSeconds` and `progressDeadlineSeconds` are in the pods too, and are no reason to load a model anew: the operator
goes by new ones at once, pods by those they were made with. Only a revision that never served is made anew, since a
longer deadline may be just what it lacks.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewardpool_api import RewardPool, names
from rewardpool_api.worker import WorkerSpec
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.manifests.diff import short_hash
from rewardpool_operator.kubernetes.render import Revision
from rewardpool_operator.kubernetes.render.worker import spec_parts
from rewardpool_operator.kubernetes.workload.containers import CONTAINER_WORKER


@dataclass(frozen=True, kw_only=True)
class _Cause:
    parts: Mapping[str, Any]
    restarted_at: str | None
    with_key: bool


def present(pool: RewardPool, offered: Revision, objects: Objects) -> Revision:
    """Return the revision that the pool needs: one rendered from the same fields, else the offered one."""
    there = {item["metadata"]["labels"][names.LABEL_REVISION]: item for item in objects.worker_deployments()}
    same = {name for name, item in there.items() if _is_made_of(pool, name, item, objects)}
    if pool.status.current_revision in same:
        chosen = pool.status.current_revision
    elif offered.name in there:
        chosen = offered.name
    else:
        chosen = max(same, key=lambda name: str(there[name]["metadata"]["creationTimestamp"]), default=offered.name)
    return offered if chosen in (None, offered.name) else _as_rendered(chosen, there[chosen])


def difference(kept: Revision, offered: Revision) -> str | None:
    """Return the differences of the offered revision's workers from the kept ones, in words; None for none."""
    if kept.name == offered.name:
        return None
    old, new = _worker(kept.template), _worker(offered.template)
    found = [
        *([f"image {new['image']} instead of {old.get('image')}"] if new["image"] != old.get("image") else []),
        *(["other mounted files"] if _files(kept.template) != _files(offered.template) else []),
        *(["another command line"] if new["command"] != old.get("command") else []),
        *(["other times to start or drain"] if _times(kept) != _times(offered) else []),
    ]
    return ", ".join(found) or "another pod template"


def files_of(template: Object) -> set[str]:
    """Names of the ConfigMaps that a pod of this template mounts."""
    spec = template.get("spec")
    # A `podTemplate` may say anything; what makes no pod is refused only when it is applied.
    volumes = spec.get("volumes") if isinstance(spec, dict) else None
    mounted = [one.get("configMap") for one in volumes if isinstance(one, dict)] if isinstance(volumes, list) else []
    found = [config_map.get("name") for config_map in mounted if isinstance(config_map, dict)]
    return {name for name in found if isinstance(name, str)}


def _is_made_of(pool: RewardPool, revision: str, deployment: Object, objects: Objects) -> bool:
    """Return whether the revision was rendered from the present pool, and can still start workers."""
    made_of, parts = _cause_of(pool, deployment), _parts_of(deployment)
    if "deletionTimestamp" in deployment["metadata"] or parts is None or made_of != _cause(pool):
        return False
    drain = parts.get("worker", {}).get("drainSeconds", WorkerSpec().drain_seconds)
    times = drain, deployment["spec"].get("progressDeadlineSeconds")
    served = pool.status.rollout
    has_served = served is not None and revision in (served.stable_revision, served.previous_revision)
    if times != (pool.spec.worker.drain_seconds, max(2, pool.spec.start_seconds)) and not has_served:
        return False
    return _files(deployment["spec"]["template"]) <= objects.files


def _cause(pool: RewardPool) -> _Cause:
    parts = json.loads(spec_parts(pool))
    restarted_at = pool.metadata.annotations.get(names.ANNOTATION_RESTARTED_AT)
    return _Cause(parts=_without_times(parts), restarted_at=restarted_at, with_key=pool.spec.router.auth.uses_key)


def _cause_of(pool: RewardPool, deployment: Object) -> _Cause:
    template = deployment["spec"]["template"]
    annotations = template["metadata"].get("annotations") or {}
    secrets = {volume.get("secret", {}).get("secretName") for volume in template["spec"].get("volumes") or []}
    return _Cause(
        parts=_without_times(_parts_of(deployment) or {}),
        restarted_at=annotations.get(names.ANNOTATION_RESTARTED_AT),
        with_key=names.key_secret(pool.metadata.name) in secrets,
    )


def _parts_of(deployment: Object) -> dict[str, Any] | None:
    """Return the parts of the spec that it was rendered from; None where it has none, or they were edited."""
    try:
        parts = json.loads((deployment["metadata"].get("annotations") or {})[names.ANNOTATION_SPEC])
    except (KeyError, ValueError, RecursionError):
        return None
    is_spec = isinstance(parts, dict) and all(isinstance(part, dict) for part in parts.values())
    return parts if is_spec else None


def _without_times(parts: Mapping[str, Any]) -> dict[str, Any]:
    worker = {name: value for name, value in parts.get("worker", {}).items() if name != "drainSeconds"}
    rest = {name: part for name, part in parts.items() if name != "worker"}
    return rest | ({"worker": worker} if worker else {})


def _as_rendered(revision: str, deployment: Object) -> Revision:
    """The revision as its Deployment has it; without the labels that are put on with the name."""
    annotations = deployment["metadata"]["annotations"]
    return Revision(
        name=revision,
        template=_noted_template(revision, annotations) or _live_template(deployment),
        spec=annotations[names.ANNOTATION_SPEC],
        start_seconds=deployment["spec"]["progressDeadlineSeconds"],
    )


def _noted_template(revision: str, annotations: Mapping[str, str]) -> Object | None:
    """The template as it was rendered; None where none was noted, or what is there is not what the revision is."""
    try:
        template: Object = json.loads(annotations[names.ANNOTATION_TEMPLATE])
    except (KeyError, ValueError, RecursionError):
        return None
    return template if short_hash(template) == revision else None


def _live_template(deployment: Object) -> Object:
    template = deployment["spec"]["template"]
    own = deployment["spec"]["selector"]["matchLabels"]
    labels = {name: value for name, value in template["metadata"].get("labels", {}).items() if name not in own}
    metadata = {name: value for name, value in template["metadata"].items() if name != "creationTimestamp"}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _worker(template: Object) -> Object:
    return next(item for item in template["spec"]["containers"] if item["name"] == CONTAINER_WORKER)


def _files(template: Object) -> set[str]:
    return {name for name in files_of(template) if name.startswith(names.FILES_PREFIX)}


def _times(revision: Revision) -> tuple[Any, ...]:
    return revision.start_seconds, revision.template["spec"].get("terminationGracePeriodSeconds")
