"""The chart as helm renders it: real helm, built from its Go module, and a real API server to say what it means."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from cluster.control_plane import ControlPlane

CHART = Path(__file__).parents[2] / "charts" / "rewardpool"
KUBERNETES = "v1.34.4"
NAMESPACE = "rewardpool-system"

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


class HelmError(RuntimeError):
    """What helm said when it refused."""


class Helm:
    """helm, as the administrator of a cluster where a kubeconfig is given."""

    def __init__(self, program: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self._program = program
        self._environment = {
            "HELM_CACHE_HOME": str(home / "cache"),
            "HELM_CONFIG_HOME": str(home / "config"),
            "HELM_DATA_HOME": str(home / "data"),
            "KUBECONFIG": str(kubeconfig or os.devnull),
        }

    def __call__(self, *args: str) -> str:
        done = subprocess.run(
            [self._program, *args],
            env=os.environ | self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise HelmError(done.stderr + done.stdout)
        return done.stdout


@pytest.fixture(scope="session", autouse=True)
def _go() -> None:
    if shutil.which("go") is None:
        pytest.skip("Go is missing; helm is built with it")


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return binaries.ensure("helm")["helm"]


@pytest.fixture(scope="session")
def helm(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    """The chart's objects under the given values."""

    def template(**values: object) -> Objects:
        values = {"image": {"repository": "hub/rp"}, **values}
        settings = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
        output = helm(
            "template", "rewardpool", str(CHART), f"--namespace={NAMESPACE}", f"--kube-version={KUBERNETES}", *settings
        )
        return [document for document in yaml.load_all(output, Loader=yaml.CSafeLoader) if document]

    return template


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("chart-plane"), controllers=False) as plane:
        yield plane
