"""`rewardpool doctor` on a real API server: without the CRD, with it, with an older one, with and without rights."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.control_plane import ControlPlane
from cluster.kubectl import wait_for_crd
from rewardpool_api import names
from rewardpool_api.schema import custom_resource_definition
from rewardpool_cli import app

pytestmark = pytest.mark.real

NAME = f"{names.PLURAL}.{names.GROUP}"
CRD = f"CRD {NAME}"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("doctor"), controllers=False) as plane:
        yield plane


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(names.ENV_STATE_DIR, str(tmp_path))


def says(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, dict[str, Any]]]:
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(kubeconfig))
    done = CliRunner().invoke(app, ["doctor", "--json", "--cluster"])
    assert done.stdout, done.exception
    return done.exit_code, {line["name"]: line for line in json.loads(done.stdout)["findings"]}


def install(plane: ControlPlane, crd: dict[str, Any]) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(crd))
    wait_for_crd(plane.kubectl, NAME)


@pytest.fixture
def installed(plane: ControlPlane) -> Iterator[None]:
    install(plane, custom_resource_definition())
    yield
    plane.kubectl("delete", "crd", NAME, "--wait")


def test_a_cluster_without_the_crd_says_how_it_is_installed(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = says(plane.kubeconfig, monkeypatch)
    assert code == 1
    assert lines["API server"]["state"] == "ok"
    assert lines["API server"]["found"].startswith("v1.")
    assert lines[CRD]["state"] == "missing"
    assert "rewardpool crd | kubectl apply" in lines[CRD]["remedy"]


@pytest.mark.usefixtures("installed")
def test_an_administrator_of_a_cluster_with_the_crd_needs_nothing(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = says(plane.kubeconfig, monkeypatch)
    assert code == 0
    # The schema is published a moment after the kind is served; until then it cannot be read.
    assert lines[CRD]["state"] in ("ok", "warning")
    assert "this program's fields" in lines[CRD]["found"] or "cannot be read" in lines[CRD]["found"]
    assert {lines[f"right to {verb} rewardpools"]["state"] for verb in ("get", "list", "create")} == {"ok"}


@pytest.mark.usefixtures("installed")
def test_who_has_no_rights_is_told_which_role_has_them(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.kubectl("create", "serviceaccount", "nobody", "-n", "default")
    token = plane.kubectl("create", "token", "nobody", "-n", "default").strip()
    code, lines = says(plane.kubeconfig_for("nobody", token), monkeypatch)
    assert code == 1
    assert lines["API server"]["state"] == "ok"
    assert lines[CRD]["state"] in ("ok", "warning")
    assert lines["right to get rewardpools"]["state"] == "missing"
    assert "role `view`" in lines["right to get rewardpools"]["remedy"]
    assert "role `edit`" in lines["right to create rewardpools"]["remedy"]
