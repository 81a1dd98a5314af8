"""The operator on a cluster: its image, its Helm release, and what a person wants to see when something failed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster import binaries, images
from cluster.contract import Cluster
from cluster.folders import CACHE, REPOSITORY
from cluster.kubectl import wait_for_crd
from cluster.processes import ClusterError, output_of
from cluster.progress import Say
from rewardpool_api import names

CHART = REPOSITORY / "charts" / "rewardpool"
NAMESPACE = "rewardpool-system"
RELEASE = "rewardpool"
IMAGE = "localhost/rewardpool:e2e"
OPERATOR_SECONDS = 120.0
LINES_OF_A_PART = 80


class Installation:
    """The release `rewardpool` in the namespace `rewardpool-system`."""

    def __init__(self, cluster: Cluster, *, folder: Path, say: Say) -> None:
        self._cluster = cluster
        self._folder = folder
        self._say = say
        self._helm_program = binaries.ensure("helm", say=say)["helm"]

    def load_image(
        self,
        tag: str = IMAGE,
        *,
        container_file: str = "workers/Containerfile",
        context: Path = REPOSITORY,
        base: str | None = None,
    ) -> None:
        """Give the nodes an image of the project, on `base` or on a bare system; built once of the same files."""
        self._cluster.load_image(self.build_image(tag, container_file=container_file, context=context, base=base))

    def build_image(
        self,
        tag: str = IMAGE,
        *,
        container_file: str = "workers/Containerfile",
        context: Path = REPOSITORY,
        base: str | None = None,
    ) -> Path:
        """Like `load_image`, but the nodes do not get it; returns the archive."""
        base = base or images.base_image(say=self._say)
        return images.build_once(
            REPOSITORY / container_file,
            context=context,
            tag=tag,
            archive=CACHE / "images" / f"{tag.rpartition('/')[2].replace(':', '-')}.tar",
            arguments={"BASE": base},
            say=self._say,
        )

    def install(self, values: Mapping[str, Any], *options: str, chart: Path | str = CHART) -> None:
        """Install or upgrade the chart, a folder or what `options` of helm make of a name; see `wait`, too."""
        self._say(f"installing the operator with helm ({Path(chart).name})")
        path = self._folder / "values.yaml"
        path.write_text(yaml.safe_dump(dict(values), sort_keys=False))
        self.helm("upgrade", "--install", RELEASE, str(chart), "--create-namespace", "--values", str(path), *options)
        wait_for_crd(self._cluster.kubectl, f"{names.PLURAL}.{names.GROUP}")

    def roll_back(self) -> None:
        """Go back to the release before; `wait` says when its operator is there."""
        self._say("going back to the release before with helm")
        self.helm("rollback", RELEASE)

    def wait(self) -> None:
        """Return when every replica of the operator is of this release and ready."""
        status = ["rollout", "status", f"deployment/{RELEASE}", f"--timeout={OPERATOR_SECONDS:.0f}s"]
        self._cluster.kubectl(*status, f"--namespace={NAMESPACE}", deadline_seconds=OPERATOR_SECONDS + 10)

    def remove(self) -> None:
        """Remove the release, the CRD and the namespace; what cannot be removed is said."""
        kubectl = self._cluster.kubectl
        attempts: Sequence[Callable[[], str]] = (
            lambda: self.helm("uninstall", RELEASE, "--ignore-not-found", "--wait"),
            lambda: kubectl("delete", "crd", f"{names.PLURAL}.{names.GROUP}", "--ignore-not-found"),
            lambda: kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false"),
        )
        for attempt in attempts:
            try:
                attempt()
            except ClusterError as error:
                self._say(f"cleaning up: {error}")

    def helm(self, *args: str | Path) -> str:
        """What helm prints, run in the release's namespace."""
        variables = {"KUBECONFIG": str(self._cluster.kubeconfig)}
        variables |= {f"HELM_{kind}_HOME": str(self._folder / "helm" / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        namespace = f"--namespace={NAMESPACE}"
        return output_of(self._helm_program, *args, namespace, deadline_seconds=180, environment=variables)


def evidence(cluster: Cluster, *, namespace: str, further: Mapping[str, list[str]] | None = None) -> str:
    """The ends of what kubectl shows of the pools, their pods and the operator; `further` names more commands."""
    commands: dict[str, list[str]] = {
        "pods": ["get", "pods", "--all-namespaces", "-o", "wide"],
        "pools": ["get", "rewardpools", "--all-namespaces", "-o", "yaml"],
        "events": ["get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"],
        "operator": ["logs", f"deployment/{RELEASE}", f"--namespace={NAMESPACE}", "--all-pods", "--tail=60"],
        "data plane": ["logs", f"--selector={names.LABEL_POOL}", f"--namespace={namespace}", "--prefix", "--tail=15"],
        **(further or {}),
    }
    parts = []
    for title, command in commands.items():
        try:
            said = cluster.kubectl(*command)
        except ClusterError as error:
            said = str(error)
        parts.append(f"--- {title}\n" + "\n".join(said.splitlines()[-LINES_OF_A_PART:]))
    return "\n".join(parts)


def refuse_used_cluster(cluster: Cluster) -> None:
    """Raise `ClusterError` where RewardPool is installed already: cleaning up would take somebody's pools along."""
    crd = f"{names.PLURAL}.{names.GROUP}"
    if cluster.kubectl("get", "crd", crd, "--ignore-not-found", "-o", "name").strip():
        raise ClusterError(f"{cluster.description} has the CRD {crd} already; take a cluster without RewardPool")
