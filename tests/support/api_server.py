"""A real API server with its controllers and the RewardPool CRD, shared by all tests that need one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.control_plane import ControlPlane

CRD = Path(__file__).resolve().parents[2] / "crds" / "rewardpool.dev_rewardpools.yaml"


def new_control_plane(folder: Path) -> ControlPlane:
    """etcd, kube-apiserver and kube-controller-manager, not started yet; up in seconds once they are built."""
    if shutil.which("go") is None:
        pytest.skip("needs Go, to build the API server: see e2e/cluster/binaries.py")
    # An HPA is looked at every 15 s by default, which tests of it would spend waiting.
    return ControlPlane(
        folder, manifests=[CRD], flags={"kube-controller-manager": ["--horizontal-pod-autoscaler-sync-period=1s"]}
    )


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One for all tests that make objects in namespaces of their own."""
    with new_control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane
