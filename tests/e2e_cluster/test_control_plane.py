"""The control plane on its own: real etcd, kube-apiserver and kube-controller-manager."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cluster.control_plane import ControlPlane
from cluster.folders import REPOSITORY
from cluster.processes import ClusterError, wait_until

pytestmark = pytest.mark.real

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: owners.cluster.test}
spec:
  group: cluster.test
  scope: Namespaced
  names: {kind: Owner, plural: owners, singular: owner}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("control-plane")
    (directory / "crd.yaml").write_text(CRD)
    with ControlPlane(directory / "plane", manifests=[directory / "crd.yaml"]) as running:
        yield running


def test_a_deployment_becomes_pods(plane: ControlPlane) -> None:
    plane.kubectl("create", "deployment", "three", "--image=none", "--replicas=3")

    wait_until(
        lambda: plane.kubectl("get", "pods", "-l", "app=three", "-o", "name").count("pod/") == 3,
        what="three pods",
        deadline_seconds=10,
    )


def test_what_a_custom_object_owns_goes_with_it(plane: ControlPlane) -> None:
    plane.kubectl("create", "-f", "-", input="{apiVersion: cluster.test/v1, kind: Owner, metadata: {name: parent}}")
    uid = plane.kubectl("get", "owner", "parent", "-o", "jsonpath={.metadata.uid}")
    reference = f"{{apiVersion: cluster.test/v1, kind: Owner, name: parent, uid: {uid}}}"
    child = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: child, ownerReferences: [{reference}]}}}}"
    plane.kubectl("create", "-f", "-", input=child)

    plane.kubectl("delete", "owner", "parent")

    plane.kubectl("wait", "--for=delete", "configmap/child", "--timeout=30s")


def test_a_service_account_gets_only_what_it_is_bound_to(plane: ControlPlane, tmp_path: Path) -> None:
    token = plane.kubectl("create", "token", "default").strip()
    kubeconfig = plane.kubeconfig_for("account", token)

    with pytest.raises(ClusterError, match="cannot list resource"):
        plane.kubectl(f"--kubeconfig={kubeconfig}", "get", "secrets")


def test_the_kubeconfig_is_readable_by_its_owner_only(plane: ControlPlane) -> None:
    assert plane.kubeconfig.stat().st_mode & 0o077 == 0


def test_two_planes_run_side_by_side_and_leave_no_process(plane: ControlPlane, tmp_path: Path) -> None:
    before = set(psutil.Process().children())

    with ControlPlane(tmp_path / "second", controllers=False) as second:
        assert second.url != plane.url
        assert "deployment" not in second.kubectl("get", "deployments", "-A", "-o", "name")

    assert set(psutil.Process().children()) == before


def test_a_killed_test_run_takes_its_control_plane_along(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, psutil\n"
        "from cluster.control_plane import ControlPlane\n"
        f"ControlPlane(pathlib.Path({str(tmp_path / 'plane')!r}), controllers=False).start()\n"
        "print(*(child.pid for child in psutil.Process().children()), flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "e2e")},
    ) as run:
        assert run.stdout is not None
        children = [psutil.Process(int(pid)) for pid in run.stdout.readline().split()]
        assert len(children) == 2

        run.kill()

    assert psutil.wait_procs(children, timeout=30)[1] == []
