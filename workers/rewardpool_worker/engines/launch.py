"""Input for starting an engine (`LaunchTarget`), the result (`Launch`), and what all engines share."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rewardpool_api import RewardPoolSpec, names, parse_source
from rewardpool_api.adapters import AdapterSpec
from rewardpool_api.engines import FOR_MODELS, TEACHER_STEP_TOKENS, Setting
from rewardpool_worker.mounted import WORKER_ZIP


@dataclass(frozen=True, kw_only=True)
class LaunchTarget:
    """Place where one worker runs: a pod's container, or a process of this machine."""

    python: tuple[str, ...] = ("python3",)
    served_name: str
    host: str
    port: int
    files_dir: str = names.FILES_DIR
    key_file: str | None = None
    """File with the pool's key; None lets everybody score."""
    claim_dir: str | None = None
    modules_dir: str | None = "/tmp/rewardpool-modules"  # noqa: S108 - inside a pod, which nobody else writes to
    """Folder for the copies of a checkpoint's own code that are run; None leaves it to the engine. A pod has one of its
    own: in a cache that pods share, one could run what another is writing."""
    download_dir: str | None = None
    """Folder that has a downloaded model's files before the engine starts; None leaves a hub's model to the engine."""
    adapters_dir: str | None = None
    """Folder with a folder for each adapter, see `adapter_path`; None leaves each where its source says."""
    is_pod: bool = True
    sleeps: bool = False

    @property
    def program(self) -> str:
        """Path of the zip of `rewardpool_worker.mounted`: a program, and a place to import from."""
        return f"{self.files_dir}/{WORKER_ZIP}"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Command and environment of one worker."""

    argv: tuple[str, ...]
    """Program and arguments. Nothing secret is among them."""
    env: Mapping[str, str] = field(default_factory=dict)


def model_path(spec: RewardPoolSpec, target: LaunchTarget) -> str:
    """The model as an engine takes it: a folder, a hub's repository, or `module:function`.

    Raises:
        ValueError: a `pvc://` source on a target where no claim is mounted, or `s3://` where nothing was downloaded.
    """
    source = parse_source(spec.model.source)
    if source.is_downloaded and target.download_dir is not None:
        return target.download_dir
    if source.scheme == "s3":
        raise ValueError("spec.model.source is s3://, which needs Kubernetes; use file:// on one machine")
    if source.scheme != "pvc":
        return source.location
    if target.claim_dir is None:
        raise ValueError("spec.model.source is pvc://, which needs Kubernetes; use file:// on one machine")
    return f"{target.claim_dir}/{source.location}".rstrip("/")


LINK: Final = "current"


def adapter_path(adapter: AdapterSpec, target: LaunchTarget) -> str:
    """The folder of a LoRA adapter, or its repository on a hub where it is not downloaded before the engine starts.

    Raises:
        ValueError: a `pvc://` source on a target where no claim is mounted.
    """
    source = parse_source(adapter.source)
    if target.adapters_dir is None:
        if source.scheme == "pvc":
            raise ValueError(
                "spec.model.adapters[].source is pvc://, which needs Kubernetes; use file:// on one machine"
            )
        return source.location
    if source.scheme == "file" and not target.is_pod:
        return source.location
    folder = f"{target.adapters_dir}/{adapter.name}"
    return {"hf": f"{folder}/{LINK}", "pvc": f"{folder}/{source.location}".rstrip("/")}.get(source.scheme, folder)


def revision_flags(spec: RewardPoolSpec, target: LaunchTarget) -> tuple[str, ...]:
    """The revision of a hub's model; files on a disk have none."""
    from_hub = parse_source(spec.model.source).scheme == "hf" and target.download_dir is None
    return ("--revision", spec.model.revision) if from_hub else ()


def trust_flags(spec: RewardPoolSpec) -> tuple[str, ...]:
    """Return the arguments that allow an engine to run the checkpoint's own code."""
    return ("--trust-remote-code",) if spec.model.trust_remote_code else ()


def invariance(spec: RewardPoolSpec) -> Setting:
    """Return what `spec.engine.deterministic` stands for: arguments, or a variable that `environment` has."""
    return FOR_MODELS[spec.engine.name].batch_invariant if spec.engine.deterministic else Setting()


def environment(spec: RewardPoolSpec, target: LaunchTarget, **engine_variables: str) -> dict[str, str]:
    """The variables every worker gets: the user's, the engine's, and RewardPool's own, later ones winning."""
    variables = {**spec.engine.variables, **engine_variables}
    if _is_all_there(spec, target):
        # The files are all there; looking for newer ones on a hub costs seconds, or minutes without a network.
        variables.setdefault("HF_HUB_OFFLINE", "1")
    if spec.model.trust_remote_code and target.modules_dir is not None:
        variables.setdefault("HF_MODULES_CACHE", target.modules_dir)
    if (variable := invariance(spec).env) is not None:
        variables |= [variable]
    variables |= {
        names.ENV_ENGINE: spec.engine.name,
        names.ENV_MODEL_TYPE: spec.model.type,
        names.ENV_SERVED_NAME: target.served_name,
        names.ENV_MODEL_PATH: model_path(spec, target),
    }
    if spec.model.head is not None:
        head = spec.model.head.model_dump(by_alias=True, exclude_none=True)
        variables[names.ENV_HEAD] = json.dumps(head, ensure_ascii=False)
    if spec.model.type in ("Discriminative", "Teacher"):
        variables[names.ENV_DTYPE] = spec.engine.dtype
    if spec.model.type == "Teacher":
        variables[names.ENV_TOP_K] = str(spec.model.most_top_k)
        if spec.worker.gpus > 0:
            variables[names.ENV_STEP_TOKENS] = str(TEACHER_STEP_TOKENS)
    if spec.model.adapters:
        adapters = sorted(spec.model.adapters, key=lambda adapter: adapter.name)
        variables[names.ENV_ADAPTERS] = json.dumps([_for_worker(adapter, target) for adapter in adapters])
    if target.key_file is not None:
        variables[names.ENV_KEY_FILE] = target.key_file
    return variables


def _is_all_there(spec: RewardPoolSpec, target: LaunchTarget) -> bool:
    model = target.download_dir is not None or parse_source(spec.model.source).scheme in ("file", "pvc")
    on_hub = any(parse_source(adapter.source).scheme == "hf" for adapter in spec.model.adapters)
    return model and (target.adapters_dir is not None or not on_hub)


def _for_worker(adapter: AdapterSpec, target: LaunchTarget) -> dict[str, str]:
    described = {"name": adapter.name, "path": adapter_path(adapter, target)}
    return described | ({"revision": adapter.revision} if adapter.revision and target.adapters_dir is None else {})


def can_sleep(spec: RewardPoolSpec, target: LaunchTarget) -> bool:
    """Return whether the engine is started so that it can be put to sleep."""
    return spec.engine.sleep.enabled and target.sleeps


def python_path(spec: RewardPoolSpec, target: LaunchTarget) -> str:
    """Return PYTHONPATH with the mounted files in front of the user's own folders."""
    users = spec.engine.variables.get("PYTHONPATH")
    return f"{target.program}:{users}" if users else target.program
