"""kind (Kubernetes in Docker), used where a Docker engine answers: somebody's laptop, most CI runners.

Written from kind's documentation and not run on the machine it was written on, which has no Docker engine; everything
else in this package was. kind itself is built from its Go module.

From the host, pods of a kind cluster answer through `kubectl port-forward` only.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from cluster import binaries
from cluster.contract import Cluster
from cluster.gpus import fake_gpus
from cluster.kubectl import kubectl
from cluster.leftovers import process_started
from cluster.processes import ClusterError, output_of
from cluster.progress import Say, timed_lines

_CREATE_SECONDS = 600.0
_PREFIX = "rewardpool"


class KindCluster(Cluster):
    """One kind node with a cluster name of this process's own.

    Args:
        mounts: folders of the host that pods mount with hostPath; the node is a container and sees no others.
        say: told what happens.
    """

    def __init__(self, *, mounts: Sequence[Path] = (), say: Say | None = None) -> None:
        pid = os.getpid()
        self.name = f"{_PREFIX}-{pid}-{process_started(pid)}"
        self.description = f"kind cluster {self.name}"
        self._mounts = mounts
        self._say = say or timed_lines()
        self._folder: Path | None = None

    @property
    def kubeconfig(self) -> Path:
        """The file that kind wrote."""
        if self._folder is None:
            raise ClusterError("the cluster is not started: enter its context, or call start()")
        return self._folder / "kubeconfig"

    def start(self) -> None:
        """Create the cluster, after deleting those of runs that were killed."""
        self._programs = binaries.ensure("kind", "kubectl", say=self._say)
        for name in self._kind("get", "clusters").split():
            if owner_has_ended(name):
                self._say(f"deleting {name}, which an ended run left")
                self._kind("delete", "cluster", "--name", name)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        config = self._folder / "kind.yaml"
        config.write_text(cluster_config(self._mounts))
        self._say("creating a kind cluster (a minute or two)")
        try:
            place = ["--name", self.name, "--kubeconfig", str(self.kubeconfig)]
            self._kind("create", "cluster", *place, "--config", str(config), "--wait", "180s")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Delete the cluster and its files."""
        if self._folder is not None:
            self._kind("delete", "cluster", "--name", self.name, "--kubeconfig", str(self.kubeconfig))
            shutil.rmtree(self._folder)
            self._folder = None

    def kubectl(self, *args: str, input: str | None = None, deadline_seconds: float = 60.0) -> str:  # noqa: A002
        """See `Cluster.kubectl`."""
        program = self._programs["kubectl"]
        return kubectl(program, self.kubeconfig, *args, data=input, deadline_seconds=deadline_seconds)

    def load_image(self, archive: Path) -> None:
        """Copy the image into the node."""
        self._kind("load", "image-archive", str(archive), "--name", self.name)

    def fake_gpus(self, count: int) -> None:
        """Let the node say that it has `count` GPUs."""
        fake_gpus(self.kubectl, f"{self.name}-control-plane", count)

    def _kind(self, *args: str) -> str:
        return output_of(self._programs["kind"], *args, deadline_seconds=_CREATE_SECONDS)


def docker_answers() -> bool:
    """Whether there is a Docker client and an engine behind it."""
    if shutil.which("docker") is None:
        return False
    try:
        output_of("docker", "version", "--format", "{{.Server.Version}}", deadline_seconds=15)
    except ClusterError:  # a client without an engine; the caller says what is used instead
        return False
    return True


def owner_has_ended(cluster: str) -> bool:
    """Whether `cluster` is one of ours (rewardpool-<pid>-<clock ticks>) whose process is gone."""
    prefix, _, rest = cluster.partition("-")
    pid, _, started = rest.partition("-")
    return prefix == _PREFIX and pid.isdigit() and started.isdigit() and process_started(int(pid)) != started


def cluster_config(mounts: Sequence[Path]) -> str:
    """Kind's configuration: one node that sees `mounts` where the host has them."""
    paths = [{"hostPath": str(mount), "containerPath": str(mount)} for mount in mounts]
    node = {"role": "control-plane", "extraMounts": paths}
    return yaml.safe_dump({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]})
