"""The workers of one revision: a pod template, and a Deployment around it.

A revision is named by the hash of its template. Another revision is another Deployment, never a rolling update of the
same one: the operator moves workers from one to the other itself, since only it knows who is in which router and who
has what in flight. Whether a template that differs is another revision is decided in `kubernetes/revisions.py`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rewardpool_api import RewardPool, names, parse_source
from rewardpool_api.inference import inferred, without_inferred
from rewardpool_api.worker import WorkerSpec
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manifests.diff import short_hash
from rewardpool_operator.kubernetes.manifests.merge import merged
from rewardpool_operator.kubernetes.render.common import (
    OWN_IMAGE,
    PRE_STOP_SECONDS,
    SURGE_FIRST,
    common_volumes,
    environment,
    every_address,
    labels,
    metadata,
    pod_template,
    recommended_labels,
    with_revision,
)
from rewardpool_operator.kubernetes.render.download import (
    ADAPTERS_DIR,
    DOWNLOAD_LINK,
    LINK_DIR,
    adapter_volumes,
    cache_volume,
    downloads_anything,
    hub_folders,
    is_downloaded,
    with_download,
    with_resources,
)
from rewardpool_operator.kubernetes.settings.pool_defaults import (
    NO_DEFAULTS,
    PodDefaults,
    PoolDefaults,
    resources_of,
    resources_over,
)
from rewardpool_operator.kubernetes.workload import sandboxes
from rewardpool_operator.kubernetes.workload.containers import CONTAINER_WORKER, PORT_HTTP
from rewardpool_worker.engines import LaunchTarget, engine_for
from rewardpool_worker.mounted import worker_files

STARTUP_PERIOD_SECONDS: Final = 2

CLAIM_DIR: Final = "/var/lib/rewardpool/model"


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One way to run the workers, as it was rendered."""

    name: str
    template: Object
    """Template of the pods, without the labels that name the revision."""
    spec: str
    start_seconds: int


def worker_revision(
    pool: RewardPool, *, image: str, ipv6: bool = False, defaults: PoolDefaults = NO_DEFAULTS
) -> Revision:
    """The revision that this operator makes of the pool; `image` is RewardPool's own."""
    template = worker_template(pool, image=image, ipv6=ipv6, defaults=defaults)
    seconds = pool.spec.start_seconds
    return Revision(name=short_hash(template), template=template, spec=spec_parts(pool), start_seconds=seconds)


def worker_deployment(pool: RewardPool, revision: Revision, *, replicas: int) -> Object:
    """The workers of the revision, in the number that was decided."""
    own_labels = labels(pool, names.COMPONENT_WORKER, revision.name)
    name = names.worker_name(pool.metadata.name, revision.name)
    described = metadata(pool, name, names.COMPONENT_WORKER, revision=revision.name)
    annotations = {
        **pool.spec.worker.annotations,
        names.ANNOTATION_SPEC: revision.spec,
        names.ANNOTATION_TEMPLATE: json.dumps(revision.template, sort_keys=True, separators=(",", ":")),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            **described,
            "labels": {**pool.spec.worker.labels, **described["labels"]},
            "annotations": annotations,
        },
        "spec": {
            "replicas": replicas,
            # Kubernetes makes no pods of one that is paused from the start; its SandboxClaims do.
            **({"paused": True} if sandboxes.are_pods_of(revision.template) else {}),
            # No history: a revision never changes. A hand edit starts one worker of its own and is then undone.
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": max(2, revision.start_seconds),
            "selector": {"matchLabels": own_labels},
            "strategy": SURGE_FIRST,
            "template": merged(revision.template, {"metadata": {"labels": own_labels}}),
        },
    }


def spec_parts(pool: RewardPool) -> str:
    """The parts of the spec that workers are rendered from, as canonical JSON: what a rollback by hand brings back."""
    chosen = {part: getattr(pool.spec, part) for part in ("model", "engine", "worker")}
    # Without defaults, so that a field that a newer operator knows changes nothing in the text.
    parts = {part: spec.model_dump(mode="json", by_alias=True, exclude_defaults=True) for part, spec in chosen.items()}
    if pool.spec.sandbox is not None:
        # That it is there means something, also where all of it is as by default.
        parts["sandbox"] = pool.spec.sandbox.model_dump(mode="json", by_alias=True, exclude_none=True)
    # A default of the model's is not the inferred value everywhere.
    for part, field in inferred(pool.spec.model.source):
        parts[part][field] = getattr(chosen[part], field)
    # A manifest that leaves out what the source says may have another source after a rollback.
    return json.dumps(without_inferred(parts), sort_keys=True, separators=(",", ":"))


def worker_template(
    pool: RewardPool, *, image: str, ipv6: bool = False, defaults: PoolDefaults = NO_DEFAULTS
) -> Object:
    """The worker pods' template, without the labels that name its revision."""
    spec = pool.spec
    engine = engine_for(spec.engine.name)
    launch = engine.launch(
        spec,
        LaunchTarget(
            served_name=pool.served_name,
            host=every_address(ipv6=ipv6),
            port=names.WORKER_PORT,
            key_file=f"{names.KEY_DIR}/{names.SECRET_KEY}" if pool.spec.router.auth.uses_key else None,
            claim_dir=CLAIM_DIR,
            download_dir=DOWNLOAD_LINK if is_downloaded(pool) else None,
            adapters_dir=ADAPTERS_DIR,
        ),
    )
    volumes, mounts = _worker_volumes(pool)
    stock = engine.default_image is not None
    default_image = defaults.stock_image(engine.default_image) if engine.default_image else image
    container: Object = {
        "name": CONTAINER_WORKER,
        "image": spec.engine.image or default_image,
        "command": list(launch.argv),
        "env": _environment(pool, launch.env),
        "ports": [{"name": PORT_HTTP, "containerPort": names.WORKER_PORT, "protocol": "TCP"}],
        "volumeMounts": mounts,
        **_worker_probes(spec.start_seconds),
    }
    resources = _resources(spec.worker, defaults.worker)
    if resources:
        container["resources"] = resources
    grace = PRE_STOP_SECONDS + spec.worker.drain_seconds + engine.end_seconds
    template = pod_template(
        container,
        volumes,
        labels=spec.worker.labels | recommended_labels(pool, names.COMPONENT_WORKER),
        grace_seconds=grace,
        security={} if stock else OWN_IMAGE,
    )
    if downloads_anything(pool):
        template = with_download(template, pool, engine, own_image=image, ipv6=ipv6)
    restarted_at = pool.metadata.annotations.get(names.ANNOTATION_RESTARTED_AT)
    annotations = {
        **spec.worker.annotations,
        **({names.ANNOTATION_RESTARTED_AT: restarted_at} if restarted_at is not None else {}),
    }
    if annotations:
        template["metadata"]["annotations"] = annotations
    template["spec"] = merged(template["spec"], defaults.pod_spec(defaults.worker))
    template = with_resources(merged(template, spec.worker.pod_template))
    if spec.sandbox is None or spec.sandbox.runtime is None:
        return template
    # Last, since a podTemplate must not take it away.
    noted: Object = merged(template, {"metadata": {"annotations": {names.ANNOTATION_RUNTIME: spec.sandbox.runtime}}})
    return noted


def _resources(worker: WorkerSpec, defaults: PodDefaults) -> Object:
    gpus: Object = {"limits": {worker.gpu_resource: str(worker.gpus)}} if worker.gpus else {}
    own = resources_over(resources_of(worker.resources), gpus)
    return resources_over(resources_of(defaults.resources), own)


def _worker_probes(start_seconds: int) -> Object:
    """Return the probes: a start ends with a real score; then only an engine that hangs for a minute is restarted."""
    ready = {"httpGet": {"path": names.READY_PATH, "port": PORT_HTTP}, "timeoutSeconds": 10}
    health = {"httpGet": {"path": "/health", "port": PORT_HTTP}, "timeoutSeconds": 10}
    attempts = math.ceil(start_seconds / STARTUP_PERIOD_SECONDS)
    return {
        "startupProbe": {**ready, "periodSeconds": STARTUP_PERIOD_SECONDS, "failureThreshold": attempts},
        # Routers' own health checks and the operator take a worker out of service; a flooded one that is slow to answer
        # a kubelet is the last one that should be stopped.
        "readinessProbe": {**ready, "periodSeconds": 15, "failureThreshold": 4},
        "livenessProbe": {**health, "periodSeconds": 10, "failureThreshold": 6},
    }


def _worker_volumes(pool: RewardPool) -> tuple[list[Object], list[Object]]:
    volumes, mounts = common_volumes(pool, worker_files())
    # Engines pass tensors between processes through shared memory; the default of 64 MiB is too small.
    volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - a mount, not a temporary file
    source = parse_source(pool.spec.model.source)
    match source.scheme:
        case "pvc":
            volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": source.claim, "readOnly": True}})
            mounts.append({"name": "model", "mountPath": CLAIM_DIR, "readOnly": True})
        case "file":
            volumes.append({"name": "model", "hostPath": {"path": source.location, "type": "Directory"}})
            mounts.append({"name": "model", "mountPath": source.location, "readOnly": True})
        case "hf" | "s3":
            volumes.append({"name": "model", "emptyDir": {}})
            mounts.append({"name": "model", "mountPath": LINK_DIR, "readOnly": True})
        case "python":
            pass
    if downloads_anything(pool):
        cache = cache_volume(pool)
        if cache is not None:
            volumes.append(cache[0])
            mounts.append(cache[1])
    adapters, adapter_mounts = adapter_volumes(pool)
    return [*volumes, *adapters], [*mounts, *adapter_mounts]


def _environment(pool: RewardPool, variables: Mapping[str, str]) -> list[Object]:
    # Not HF_HOME: libraries write below it, and the engine may not write to the cache.
    cache = {"HF_HUB_CACHE": hub_folders(pool)[1]} if downloads_anything(pool) else {}
    return with_revision(environment(pool, {**cache, **variables}))
