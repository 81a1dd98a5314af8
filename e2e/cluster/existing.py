"""The cluster that KUBECONFIG names: somebody's own, so it is used and never started, reset or deleted."""

import json
import os
import shlex
import shutil
from pathlib import Path

from cluster import binaries
from cluster.contract import Cluster
from cluster.gpus import RESOURCE, fake_gpus, remove_fake_gpus
from cluster.kubectl import kubectl
from cluster.processes import ClusterError, output_of
from cluster.progress import Say, timed_lines

LOAD_COMMAND = "REWARDPOOL_E2E_LOAD_IMAGE"
"""Environment variable with the command that gives the cluster an image, called with the archive's path at its end."""

_LOAD_SECONDS = 600.0


class ExistingCluster(Cluster):
    """The cluster of the file `kubeconfig`; `close` takes back the GPUs that `fake_gpus` wrote, and nothing else."""

    def __init__(self, kubeconfig: Path, *, say: Say | None = None) -> None:
        self.description = f"the cluster of {kubeconfig}"
        self._kubeconfig = kubeconfig
        self._say = say or timed_lines()
        self._faked_on: str | None = None

    @property
    def kubeconfig(self) -> Path:
        """The file it was made with."""
        return self._kubeconfig

    def start(self) -> None:
        """Check that it answers."""
        self._program = shutil.which("kubectl") or binaries.ensure("kubectl", say=self._say)["kubectl"]
        self.kubectl("get", "--raw", "/readyz", deadline_seconds=30)

    def close(self) -> None:
        """Take the faked GPUs back."""
        if self._faked_on is not None:
            remove_fake_gpus(self.kubectl, self._faked_on)
            self._faked_on = None

    def kubectl(self, *args: str, input: str | None = None, deadline_seconds: float = 60.0) -> str:  # noqa: A002
        """See `Cluster.kubectl`."""
        return kubectl(self._program, self._kubeconfig, *args, data=input, deadline_seconds=deadline_seconds)

    def load_image(self, archive: Path) -> None:
        """Run the command in REWARDPOOL_E2E_LOAD_IMAGE; how a cluster takes images is known to its owner only."""
        command = os.environ.get(LOAD_COMMAND)
        if not command:
            raise ClusterError(
                f"set {LOAD_COMMAND} to the command that gives your cluster an image archive, for example "
                f"'minikube image load' or 'k3d image import'; it is called with {archive} at its end"
            )
        output_of(*shlex.split(command), archive, deadline_seconds=_LOAD_SECONDS)

    def fake_gpus(self, count: int) -> None:
        """Do nothing where a node has `count` GPUs already; otherwise write them to the first schedulable node."""
        nodes = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        if any(int(node["status"]["allocatable"].get(RESOURCE, 0)) >= count for node in nodes):
            return
        bare = [
            node["metadata"]["name"]
            for node in nodes
            if RESOURCE not in node["status"]["allocatable"] and not node["spec"].get("unschedulable")
        ]
        if not bare:
            raise ClusterError(f"no schedulable node without {RESOURCE} on which {count} could be faked")
        self._faked_on = bare[0]
        fake_gpus(self.kubectl, bare[0], count)
