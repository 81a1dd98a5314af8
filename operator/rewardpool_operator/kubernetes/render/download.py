"""What puts a model's files into a worker's pod before the engine starts: an init container, a cache, and a link.

It runs on the engine's own image, which has the hub's client, from files mounted out of the ConfigMap. So no image has
to be pulled for it, it writes as the user who will read, and an upgraded operator changes no pod. (Stock SGLang images
have no S3 client; for those alone it runs on RewardPool's own image.)
"""

from typing import Final

from rewardpool_api import RewardPool, names, parse_source
from rewardpool_operator.kubernetes.client import Object
from rewardpool_operator.kubernetes.render.common import CONTAINER_SECURITY, every_address, files_name
from rewardpool_worker.engines import Engine
from rewardpool_worker.mounted import DOWNLOAD_PACKAGE, download_paths, worker_files

CONTAINER_DOWNLOAD: Final = "download"
HUB_DIR: Final = "/var/cache/huggingface"
"""The hub's cache: a shared claim, or a folder that outlives restarts of the container."""
LINK_DIR: Final = "/var/lib/rewardpool/model"
DOWNLOAD_LINK: Final = f"{LINK_DIR}/current"
"""Leads to the files of the release; the engine's command line is the same for every release."""
TERMINATION_LOG: Final = "/dev/termination-log"
"""What a container leaves here, Kubernetes keeps in the pod's status."""
PROGRAM_DIR: Final = "/etc/rewardpool/download"
"""Where the download's package is mounted."""


def is_downloaded(pool: RewardPool) -> bool:
    """Whether the pool's model comes over a network."""
    return parse_source(pool.spec.model.source).is_downloaded


def download_volumes(pool: RewardPool) -> tuple[list[Object], list[Object]]:
    """Cache and link, as the engine and the download see them."""
    cache = pool.spec.model.cache
    claim = {"persistentVolumeClaim": {"claimName": cache.claim_name}} if cache else {"emptyDir": {}}
    volumes: list[Object] = [{"name": "hub-cache", **claim}, {"name": "model", "emptyDir": {}}]
    mounts: list[Object] = [
        {"name": "hub-cache", "mountPath": HUB_DIR},
        {"name": "model", "mountPath": LINK_DIR},
    ]
    return volumes, mounts


def with_download(template: Object, pool: RewardPool, engine: Engine, *, own_image: str, ipv6: bool) -> Object:
    """The worker's template with the download in front of the engine."""
    spec, (worker,) = template["spec"], template["spec"]["containers"]
    items = [{"key": key, "path": path} for key, path in sorted(download_paths().items())]
    program = {"name": "download", "configMap": {"name": files_name(pool, worker_files()), "items": items}}
    pins = {"name": "pins", "configMap": {"name": names.pins_config_map(pool.metadata.name)}}
    shared = [mount for mount in worker["volumeMounts"] if mount["name"] in ("files", "hub-cache", "model")]
    container: Object = {
        "name": CONTAINER_DOWNLOAD,
        "image": _image(pool, engine, worker["image"], own_image),
        "command": ["python3", "-m", DOWNLOAD_PACKAGE, *_arguments(pool, ipv6=ipv6)],
        # Where Python looks for a module that is run by its name.
        "workingDir": PROGRAM_DIR,
        "env": _environment(pool),
        **_credentials(pool),
        "volumeMounts": [
            *shared,
            {"name": "download", "mountPath": PROGRAM_DIR, "readOnly": True},
            {"name": "pins", "mountPath": names.PINS_DIR, "readOnly": True},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": CONTAINER_SECURITY,
    }
    return {
        **template,
        "spec": {**spec, "initContainers": [container], "volumes": [*spec["volumes"], program, pins]},
    }


def _image(pool: RewardPool, engine: Engine, engine_image: str, own_image: str) -> str:
    from_s3 = parse_source(pool.spec.model.source).scheme == "s3"
    return own_image if from_s3 and not engine.has_s3_client else engine_image


def _arguments(pool: RewardPool, *, ipv6: bool) -> list[str]:
    model = pool.spec.model
    return [
        *("--source", model.source, "--revision", model.revision),
        *("--cache", f"{HUB_DIR}/hub", "--link", DOWNLOAD_LINK),
        *("--pins", f"{names.PINS_DIR}/{names.PINS_FILE}", "--report", TERMINATION_LOG),
        *("--host", every_address(ipv6=ipv6), "--port", str(names.WORKER_PORT)),
    ]


def _environment(pool: RewardPool) -> list[Object]:
    """The engine's variables, which may name a proxy or a mirror of the hub, and what only the download may know."""
    given = {"HF_HOME": HUB_DIR, **pool.spec.engine.env}
    env: list[Object] = [{"name": name, "value": value} for name, value in sorted(given.items())]
    # A template cannot name its own hash; the pod has it as a label.
    revision = {"fieldRef": {"fieldPath": f"metadata.labels['{names.LABEL_REVISION}']"}}
    env.append({"name": names.ENV_REVISION, "valueFrom": revision})
    token = pool.spec.model.token_secret_ref
    if token is not None and parse_source(pool.spec.model.source).scheme == "hf":
        env.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": token.name, "key": token.key}}})
    return env


def _credentials(pool: RewardPool) -> Object:
    secret = pool.spec.model.credentials_secret_ref
    return {"envFrom": [{"secretRef": {"name": secret.name}}]} if secret is not None else {}
