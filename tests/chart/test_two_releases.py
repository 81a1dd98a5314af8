"""Two releases of the chart in two namespaces of one cluster, on a real API server.

Their operators run as processes here, as pods need a node, with the arguments, variables and ServiceAccount that each
release's own Deployment gives its pod.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.kube_builders import FUNCTION
from support.processes import RealProcess

from cluster.control_plane import ControlPlane
from cluster.kubectl import wait_for_crd, write_kubeconfig
from cluster.processes import ClusterError
from rewardpool_api import names
from rewardpool_api.status import NEVER_OBSERVED

from .conftest import CHART, Helm

pytestmark = pytest.mark.real

TEAMS = ("team-a", "team-b")
NOBODYS = "nobodys"
SECONDS = 40


class Release:
    """A release `rewardpool` in a team's namespace, which it watches alone."""

    def __init__(self, plane: ControlPlane, helm: Helm, namespace: str, folder: Path) -> None:
        self._plane, self._helm, self.namespace, self._folder = plane, helm, namespace, folder

    def install(self, *settings: str) -> None:
        where = [f"--namespace={self.namespace}", f'--set-json=watch.namespaces=["{self.namespace}"]']
        self._helm("install", "rewardpool", str(CHART), "--set=image.repository=hub/rp", *where, *settings)
        wait_for_crd(self._plane.kubectl, f"{names.PLURAL}.{names.GROUP}")

    def operator(self) -> RealProcess:
        """What the release's Deployment runs, not started yet."""
        read = ["get", "deployment", "rewardpool", f"--namespace={self.namespace}", "-o", "json"]
        pod = json.loads(self._plane.kubectl(*read))["spec"]["template"]["spec"]
        container = pod["containers"][0]
        given = [argument for argument in container["args"] if "-socket=" not in argument]
        environment = {item["name"]: item.get("value", self.namespace) for item in container["env"]}
        token = ["create", "token", pod["serviceAccountName"], f"--namespace={self.namespace}", "--duration=1h"]
        kubeconfig = write_kubeconfig(
            self._folder / f"{self.namespace}.kubeconfig",
            url=self._plane.url,
            authority=self._plane.authority.certificate,
            token=self._plane.kubectl(*token).strip(),
        )
        return RealProcess(
            [str(Path(sys.executable).with_name("rewardpool")), *given],
            log=self._folder / f"{self.namespace}.log",
            env={**environment, "KUBECONFIG": str(kubeconfig)},
            cwd=self._folder,
        )


@pytest.fixture
def releases(plane: ControlPlane, helm_program: Path, tmp_path: Path) -> list[Release]:
    """The two, installed, with a pool in each of three namespaces."""
    helm = Helm(helm_program, tmp_path / "helm", plane.kubeconfig)
    for namespace in (*TEAMS, NOBODYS):
        plane.kubectl("create", "namespace", namespace)
    first, second = (Release(plane, helm, namespace, tmp_path) for namespace in TEAMS)
    first.install()
    second.install("--set=crds.install=false", "--set=rbac.userRoles=false")
    for namespace in (*TEAMS, NOBODYS):
        metadata = {"name": "rules", "namespace": namespace}
        pool = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": FUNCTION}
        plane.kubectl("create", "-f", "-", input=json.dumps(pool))
    return [first, second]


def seen(plane: ControlPlane, namespace: str) -> int:
    """The generation of the namespace's pool that an operator has acted on; `NEVER_OBSERVED` where none has."""
    read = ["get", "rewardpool", "rules", f"--namespace={namespace}", "-o", "json"]
    status: dict[str, Any] = json.loads(plane.kubectl(*read))["status"]
    return int(status["observedGeneration"])


def may_write_status(plane: ControlPlane, operator_of: str, namespace: str) -> bool:
    who = f"--as=system:serviceaccount:{operator_of}:rewardpool"
    try:
        plane.kubectl(
            "auth", "can-i", "patch", "rewardpools/rules", "--subresource=status", who, f"--namespace={namespace}"
        )
    except ClusterError:  # can-i says "no" by its exit status
        return False
    return True


def deployments(plane: ControlPlane, namespace: str) -> set[str]:
    found = plane.kubectl("get", "deployments", f"--namespace={namespace}", "-o", "name").split()
    return {name.rpartition("/")[2] for name in found}


def test_each_of_two_releases_acts_in_its_own_namespace_alone(plane: ControlPlane, releases: list[Release]) -> None:
    first, second = releases
    with first.operator() as operator:
        operator.until(lambda: seen(plane, "team-a") == 1, seconds=SECONDS, what="the first acts on its pool")
        assert (seen(plane, "team-b"), seen(plane, NOBODYS)) == (NEVER_OBSERVED, NEVER_OBSERVED)
        with second.operator() as other:
            other.until(lambda: seen(plane, "team-b") == 1, seconds=SECONDS, what="the second acts on its pool")
            other.signal(signal.SIGTERM)
            assert other.exit_code(seconds=15) == 0
        for namespace in (*TEAMS, NOBODYS):
            suspend = ["--type=merge", '--patch={"spec": {"suspend": true}}']
            plane.kubectl("patch", "rewardpool", "rules", f"--namespace={namespace}", *suspend)
        operator.until(lambda: seen(plane, "team-a") == 2, seconds=SECONDS, what="the first acts on the change")
        assert (seen(plane, "team-b"), seen(plane, NOBODYS)) == (1, NEVER_OBSERVED)

    assert deployments(plane, NOBODYS) == set()
    assert all(len(deployments(plane, namespace)) > 1 for namespace in TEAMS), "no pool beside the operator"
    rights = {(one, other): may_write_status(plane, one, other) for one in TEAMS for other in (*TEAMS, NOBODYS)}
    assert {pair for pair, allowed in rights.items() if allowed} == {(team, team) for team in TEAMS}
