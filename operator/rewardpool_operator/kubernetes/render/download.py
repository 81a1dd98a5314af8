"""Download of a model into a worker's pod before the engine starts: an init container, a cache, and a link.

It runs on the engine's own image, which has the hub's client, from files mounted out of the ConfigMap. So no image has
to be pulled for it, it writes as the user who will read, and an upgraded operator changes no pod. (Stock SGLang images
have no S3 client; for those alone it runs on RewardPool's own image.)

It alone may write to cache and link: the engine, which runs what a model or a user brings, mounts both read-only.
"""

from pathlib import PurePosixPath
from typing import Any, Final

from rewardpool_api import RewardPool, names, parse_source
from rewardpool_api.adapters import AdapterSpec
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manifests.merge import removes
from rewardpool_operator.kubernetes.render.common import (
    CONTAINER_SECURITY,
    environment,
    every_address,
    with_revision,
)
from rewardpool_operator.kubernetes.settings.pool_defaults import resources_over
from rewardpool_operator.kubernetes.workload.containers import (
    ADAPTER_DOWNLOAD,
    CONTAINER_DOWNLOAD,
    CONTAINER_WORKER,
    is_download,
)
from rewardpool_worker.engines import Engine
from rewardpool_worker.engines.launch import LINK
from rewardpool_worker.mounted import WORKER_ZIP

HUB_DIR: Final = "/var/cache/huggingface"
LINK_DIR: Final = "/var/lib/rewardpool/model"
CACHE: Final = "hub-cache"
# Leads to the files of the release, so that the engine's command line is the same for every release.
DOWNLOAD_LINK: Final = f"{LINK_DIR}/{LINK}"
TERMINATION_LOG: Final = "/dev/termination-log"

NATIVE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
ADAPTERS_DIR: Final = "/var/lib/rewardpool/adapters"
"""Folder of folders for each LoRA adapter, by its name: a link to what was downloaded, or the volume that it is on."""


def is_downloaded(pool: RewardPool) -> bool:
    """Return whether the pool's model comes over a network."""
    return parse_source(pool.spec.model.source).is_downloaded


def downloads_anything(pool: RewardPool) -> bool:
    """Return whether the model comes over a network, or one of its adapters."""
    return is_downloaded(pool) or bool(_downloaded_adapters(pool))


def sorted_adapters(pool: RewardPool) -> list[AdapterSpec]:
    """The pool's adapters by name: another order in the manifest is no other pod."""
    return sorted(pool.spec.model.adapters, key=lambda adapter: adapter.name)


def hub_folders(pool: RewardPool) -> tuple[str, str]:
    """Return the mount path of the hub's cache, and the folder in it that has the models."""
    variables = pool.spec.engine.variables
    home = variables.get("HF_HOME", HUB_DIR).rstrip("/")
    cache = variables.get("HF_HUB_CACHE")
    return (home, f"{home}/hub") if cache is None else (cache.rstrip("/"), cache.rstrip("/"))


def cache_volume(pool: RewardPool) -> tuple[Object, Object] | None:
    """The hub's cache, and how the engine mounts it; None where it is on a volume of the user's."""
    cache, (folder, _) = pool.spec.model.cache, hub_folders(pool)
    if cache is None and any(_has_hub(pool, mount) for mount in _users_mounts(pool)):
        return None
    claim = {"persistentVolumeClaim": {"claimName": cache.claim_name}} if cache else {"emptyDir": {}}
    return {"name": CACHE, **claim}, {"name": CACHE, "mountPath": folder, "readOnly": True}


def _has_hub(pool: RewardPool, mount: Object) -> bool:
    return PurePosixPath(hub_folders(pool)[0]).is_relative_to(mount["mountPath"])


def _users_mounts(pool: RewardPool) -> list[Object]:
    """Mounts that the worker's `podTemplate` has, which may be anything."""
    workers = [
        one
        for one in _maps(pool.spec.worker.pod_template.get("spec"), "containers")
        if one.get("name") == CONTAINER_WORKER
    ]
    mounts = [mount for worker in workers for mount in _maps(worker, "volumeMounts") if not removes(mount)]
    return [mount for mount in mounts if isinstance(mount.get("mountPath"), str)]


def adapter_volumes(pool: RewardPool) -> tuple[list[Object], list[Object]]:
    """Return volumes and mounts of the adapters."""
    volumes: list[Object] = []
    mounts: list[Object] = []
    for index, adapter in enumerate(sorted_adapters(pool)):
        source, name = parse_source(adapter.source), f"adapter-{index}"
        on: Object = {"emptyDir": {}}
        if source.scheme == "pvc":
            on = {"persistentVolumeClaim": {"claimName": source.claim, "readOnly": True}}
        elif source.scheme == "file":
            on = {"hostPath": {"path": source.location, "type": "Directory"}}
        volumes.append({"name": name, **on})
        mounts.append({"name": name, "mountPath": f"{ADAPTERS_DIR}/{adapter.name}", "readOnly": True})
    return volumes, mounts


def _downloaded_adapters(pool: RewardPool) -> list[AdapterSpec]:
    return [adapter for adapter in sorted_adapters(pool) if parse_source(adapter.source).is_downloaded]


def with_download(template: Object, pool: RewardPool, engine: Engine, *, own_image: str, ipv6: bool) -> Object:
    """The worker's template with the downloads in front of the engine: that of the model, and one for each adapter."""
    spec, (worker,) = template["spec"], template["spec"]["containers"]
    # Not there before the first worker has said which commit it found.
    pins = {"name": "pins", "configMap": {"name": names.pins_config_map(pool.metadata.name), "optional": True}}
    adapters = {f"{ADAPTERS_DIR}/{adapter.name}" for adapter in _downloaded_adapters(pool)}
    filled = {hub_folders(pool)[0], *adapters, *([LINK_DIR] if is_downloaded(pool) else [])}
    shared = [
        _writable(mount) if mount["mountPath"] in filled else mount
        for mount in worker["volumeMounts"]
        if mount["name"] in ("files", CACHE, "model") or mount["mountPath"].startswith(f"{ADAPTERS_DIR}/")
    ]
    container: Object = {
        "image": _image(pool, engine, worker["image"], own_image),
        "env": _environment(pool),
        **_credentials(pool),
        "volumeMounts": [
            *shared,
            {"name": "pins", "mountPath": names.PINS_DIR, "readOnly": True},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
    }
    taken = {mount["mountPath"] for mount in container["volumeMounts"]}
    # Whatever the user's variables speak of, such as a cache or a file of certificates, is there for the download too.
    container["volumeMounts"] += [
        _writable(mount) if _has_hub(pool, mount) else mount
        for mount in _users_mounts(pool)
        if mount["mountPath"] not in taken
    ]
    commands = _commands(pool, ipv6=ipv6)
    containers = [{"name": name, "command": command, **container} for name, command in commands.items()]
    return {
        **template,
        "spec": {**spec, "initContainers": containers, "volumes": [*spec["volumes"], pins]},
    }


def _writable(mount: Object) -> Object:
    return {name: value for name, value in mount.items() if name not in ("readOnly", "recursiveReadOnly")}


def _image(pool: RewardPool, engine: Engine, engine_image: str, own_image: str) -> str:
    from_s3 = parse_source(pool.spec.model.source).scheme == "s3"
    return own_image if from_s3 and not engine.has_s3_client else engine_image


def _commands(pool: RewardPool, *, ipv6: bool) -> dict[str, list[str]]:
    """The init containers by name, in their order, with what each runs."""

    def command(source: str, revision: str, link: str, *pins: str) -> list[str]:
        return [
            *(
                "python3",
                f"{names.FILES_DIR}/{WORKER_ZIP}",
                "download.program",
                "--source",
                source,
                "--revision",
                revision,
            ),
            *("--cache", hub_folders(pool)[1], "--link", link),
            *(*pins, "--report", TERMINATION_LOG),
            *("--host", every_address(ipv6=ipv6), "--port", str(names.WORKER_PORT)),
        ]

    model, found = pool.spec.model, {}
    if is_downloaded(pool):
        pins = ("--pins", f"{names.PINS_DIR}/{names.PINS_FILE}")
        found[CONTAINER_DOWNLOAD] = command(model.source, model.revision, DOWNLOAD_LINK, *pins)
    for index, adapter in enumerate(_downloaded_adapters(pool)):
        link = f"{ADAPTERS_DIR}/{adapter.name}/{LINK}"
        # Its revision is a commit, so nothing has to be pinned.
        found[f"{ADAPTER_DOWNLOAD}{index}"] = command(adapter.source, adapter.revision or "", link)
    return found


def with_resources(template: Object) -> Object:
    """The template with what the worker may take for the downloads too, where they say nothing else."""
    # The user's `podTemplate` is merged in, so the template may be anything.
    spec: Any = template.get("spec")
    containers, downloads = (_maps(spec, field) for field in ("containers", "initContainers"))
    worker = next((one for one in containers if one.get("name") == CONTAINER_WORKER), {})
    resources = worker.get("resources")
    given = {
        kind: {name: amounts[name] for name in NATIVE_RESOURCES if name in amounts}
        for kind in ("requests", "limits")
        if isinstance(resources, dict) and isinstance(amounts := resources.get(kind), dict)
    }
    items = spec.get("initContainers") if isinstance(spec, dict) else None
    if not any(given.values()) or not isinstance(items, list) or len(downloads) != len(items):
        return template
    # Downloads end before the worker starts, so the pod takes no more by it; and a quota of limits takes no pod that
    # has a container without.
    found = [
        {**one, "resources": resources_over(given, one.get("resources") or {})}
        if is_download(str(one.get("name"))) and _are_resources(one.get("resources"))
        else one
        for one in downloads
    ]
    return {**template, "spec": {**spec, "initContainers": found}}


def _are_resources(value: object) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(amounts, dict) for amounts in value.values()))


def _maps(value: object, field: str) -> list[Object]:
    items = value.get(field) if isinstance(value, dict) else None
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []


def _environment(pool: RewardPool) -> list[Object]:
    """The engine's variables, which may name a proxy or a mirror of the hub, and what only the download may know."""
    env = with_revision(environment(pool, {"HF_HOME": hub_folders(pool)[0], **pool.spec.engine.variables}))
    token = pool.spec.model.token_secret_ref
    sources = (pool.spec.model.source, *(adapter.source for adapter in pool.spec.model.adapters))
    if token is not None and any(parse_source(source).scheme == "hf" for source in sources):
        env = [variable for variable in env if variable["name"] != "HF_TOKEN"]
        env.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": token.name, "key": token.key}}})
    return env


def _credentials(pool: RewardPool) -> Object:
    secret = pool.spec.model.credentials_secret_ref
    return {"envFrom": [{"secretRef": {"name": secret.name}}]} if secret is not None else {}
