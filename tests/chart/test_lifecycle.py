"""A release's life on a real API server: the version before, an upgrade, a rollback, an uninstall; the pools stay.

That they go on serving meanwhile is proved on a node, by `make e2e`.
"""

import json
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane
from cluster.kubectl import wait_for_crd

from .conftest import CHART, NAMESPACE, Helm

pytestmark = pytest.mark.real

PREVIOUS = Path(__file__).parent / "previous" / "rewardpool-0.1.0.tgz"
POOL = {
    "apiVersion": "rewardpool.dev/v1alpha1",
    "kind": "RewardPool",
    "metadata": {"name": "skywork", "namespace": "default"},
    "spec": {"model": {"source": "hf://org/model"}},
}


def pool_uid(plane: ControlPlane) -> str:
    return plane.kubectl("get", "rewardpool", "skywork", "-o", "jsonpath={.metadata.uid}")


def crd(plane: ControlPlane) -> dict[str, object]:
    found: dict[str, object] = json.loads(plane.kubectl("get", "crd", "rewardpools.rewardpool.dev", "-o", "json"))
    return found


def test_pools_outlive_upgrade_rollback_and_uninstall(plane: ControlPlane, helm_program: Path, tmp_path: Path) -> None:
    helm = Helm(helm_program, tmp_path, plane.kubeconfig)
    where = [f"--namespace={NAMESPACE}"]
    helm("install", "rewardpool", str(PREVIOUS), "--create-namespace", *where)
    wait_for_crd(plane.kubectl, "rewardpools.rewardpool.dev")
    plane.kubectl("apply", "-f", "-", input=json.dumps(POOL))
    before, old_crd = pool_uid(plane), crd(plane)

    image = "--set=image.repository=hub/rp"
    helm("upgrade", "rewardpool", str(CHART), image, *where)
    assert crd(plane)["spec"] != old_crd["spec"], "the upgrade brought no new CRD"
    assert pool_uid(plane) == before

    helm("rollback", "rewardpool", "1", *where)
    assert pool_uid(plane) == before

    helm("upgrade", "rewardpool", str(CHART), image, *where)
    helm("uninstall", "rewardpool", *where)
    assert pool_uid(plane) == before
    assert not plane.kubectl("get", "deployments", *where, "-o", "name").strip()

    helm("install", "rewardpool", str(CHART), image, *where)
    assert pool_uid(plane) == before
    helm("uninstall", "rewardpool", *where)
