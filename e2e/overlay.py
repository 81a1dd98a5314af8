"""What the end-to-end run changes about the quick start, and why. Pure functions from manifest to manifest.

The manifest in `examples/quickstart` names a stock image with vLLM, of some 10 GB, from a registry that a test machine
need not reach. So the pods run the project's base image and find the engine, and the trainer, in this machine's own
virtual environments, mounted from the node. Everything else stays as the quick start has it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

GPU_RESOURCE = "nvidia.com/gpu"
TRAINER_ACCOUNT = "trainer"
WORKER_CPU = "500m"
"""Two workers, a router and the operator fit on two cores by it; the training job asks for nothing."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment of this machine, as pods see it."""

    folder: Path
    """The environment itself."""
    base: Path
    """The Python installation behind it, `sys.base_prefix`."""

    @property
    def search_path(self) -> str:
        """PATH that finds this environment's programs first."""
        return f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"

    @property
    def folders(self) -> tuple[Path, ...]:
        """What has to be mounted; an installation in /usr is the image's own, which has the same Python there."""
        return (self.folder,) if self.base == Path("/usr") else (self.folder, self.base)


def quick_start_on_this_machine(pool: Manifest, *, server: Environment, image: str) -> Manifest:
    """The quick-start pool with one replica on one (faked) GPU, its engine from the `server` environment."""
    spec = pool["spec"]
    volumes, mounts = host_folders(server.folders)
    env = [*spec["engine"].get("env", []), {"name": "PATH", "value": server.search_path}]
    # These engines compute on the cores that the training job takes whole: a request gives them their share of those.
    worker = {"name": "worker", "volumeMounts": mounts, "resources": {"requests": {"cpu": WORKER_CPU}}}
    return {
        **pool,
        "spec": {
            **spec,
            "engine": {**spec["engine"], "image": image, "env": env},
            "worker": {
                **spec["worker"],
                "gpus": 1,
                "gpuResource": GPU_RESOURCE,
                "podTemplate": {"spec": {"volumes": volumes, "containers": [worker]}},
            },
            "replicas": 1,
        },
    }


def training_config(config: Manifest, *, folder: Path, steps: int, wait_seconds: float, output: Path) -> Manifest:
    """The quick start's training job with `steps` steps, its relative paths taken from `folder`."""
    return {
        **config,
        "policy": {**config["policy"], "path": str(folder / config["policy"]["path"])},
        "data": {**config["data"], "prompts": str(folder / config["data"]["prompts"])},
        "reward": {**config["reward"], "wait_seconds": wait_seconds},
        "steps": steps,
        "output": str(output),
    }


def training_job(
    *, namespace: str, trainer: Environment, image: str, config: Path, read: Iterable[Path], write: Path, ranks: int
) -> list[Manifest]:
    """A ServiceAccount, and a pod that trains under it once, by torchrun, with the given host folders mounted."""
    read_volumes, read_mounts = host_folders([*trainer.folders, *read])
    write_volumes, write_mounts = host_folders([write], read_only=False)
    command = ["torchrun", "--standalone", f"--nproc-per-node={ranks}", "-m", "rewardpool_train", str(config)]
    container = {
        "name": "trainer",
        "image": image,
        "imagePullPolicy": "Never",
        "command": command,
        "env": [
            {"name": "PATH", "value": trainer.search_path},
            {"name": "HF_HUB_OFFLINE", "value": "1"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ],
        "volumeMounts": [*read_mounts, *write_mounts],
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": TRAINER_ACCOUNT, "namespace": namespace},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "trainer", "namespace": namespace},
            "spec": {
                "serviceAccountName": TRAINER_ACCOUNT,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 60,
                "containers": [container],
                "volumes": [*read_volumes, *write_volumes],
            },
        },
    ]


def chart_values(*, image: str, namespace: str, pool: str) -> Mapping[str, Any]:
    """Values of the Helm chart: the image that was just built, and the training job's right to use the pool."""
    account = {"namespace": namespace, "name": TRAINER_ACCOUNT}
    return {
        "image": chart_image(image),
        "trainers": [{"namespace": namespace, "pools": [pool], "serviceAccounts": [account]}],
    }


def chart_image(reference: str) -> Manifest:
    """The chart's value for an image that the nodes have."""
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "Never"}


def host_folders(folders: Iterable[Path], *, read_only: bool = True) -> tuple[list[Manifest], list[Manifest]]:
    """Volumes and mounts that show the node's folders at the same paths inside a pod."""
    volumes, mounts = [], []
    for index, folder in enumerate(dict.fromkeys(folders)):
        name = f"host-{'read' if read_only else 'write'}-{index}"
        volumes.append({"name": name, "hostPath": {"path": str(folder), "type": "Directory"}})
        mounts.append({"name": name, "mountPath": str(folder), "readOnly": read_only})
    return volumes, mounts
