"""Which of the three clusters is taken, and what the one of KUBECONFIG may do."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import choose, kind
from cluster.choose import open_cluster
from cluster.existing import ExistingCluster
from cluster.kind import KindCluster
from cluster.leftovers import process_started
from cluster.node import NodeCluster
from cluster.processes import ClusterError


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(choose, "docker_answers", lambda: False)


def test_kubeconfig_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(choose, "docker_answers", lambda: True)

    assert isinstance(open_cluster(), ExistingCluster)


def test_kind_is_taken_where_docker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "docker_answers", lambda: True)

    assert isinstance(open_cluster(), KindCluster)


def test_otherwise_a_node_is_built_and_the_choice_is_said() -> None:
    said: list[str] = []

    assert isinstance(open_cluster(say=said.append), NodeCluster)
    assert said == [
        "using Kubernetes built from source, node-1 in namespaces of this machine "
        "(KUBECONFIG is not set and no Docker engine answers)"
    ]


def test_a_docker_client_without_an_engine_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\necho no engine >&2\nexit 1\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert not kind.docker_answers()


def test_a_kind_cluster_is_left_over_only_when_its_process_is_gone() -> None:
    living = KindCluster().name
    pid = living.split("-")[1]

    assert not kind.owner_has_ended(living)
    assert kind.owner_has_ended(f"rewardpool-{pid}-1")
    assert not kind.owner_has_ended("rewardpool-dev")
    assert not kind.owner_has_ended("somebody-1-1")
    assert process_started(int(pid)) is not None


def test_kinds_node_sees_the_named_folders_where_the_host_has_them() -> None:
    (node,) = yaml.safe_load(kind.cluster_config([Path("/models")]))["nodes"]

    assert node["extraMounts"] == [{"hostPath": "/models", "containerPath": "/models"}]


class FakeNodes(ExistingCluster):
    """An existing cluster whose kubectl is a fake: it lists the given nodes and remembers the patches."""

    def __init__(self, allocatable: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(Path("config"), say=lambda line: None)
        self.patches: list[tuple[str, Any]] = []
        self._nodes = [
            {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": amounts}}
            for name, amounts in allocatable.items()
        ]

    def kubectl(self, *args: str, input: str | None = None, deadline_seconds: float = 60.0) -> str:  # noqa: A002
        if args[0] == "patch":
            self.patches.append((args[2], json.loads(args[-1])["status"]["allocatable"]))
        return json.dumps({"items": self._nodes})


def test_real_gpus_of_an_existing_cluster_are_left_as_they_are() -> None:
    cluster = FakeNodes({"gpu-node": {"nvidia.com/gpu": "8"}})

    cluster.fake_gpus(2)
    cluster.close()

    assert cluster.patches == []


def test_gpus_faked_on_an_existing_cluster_are_taken_back_once() -> None:
    cluster = FakeNodes({"gpu-node": {"nvidia.com/gpu": "1"}, "cpu-node": {}})

    cluster.fake_gpus(2)
    cluster.close()
    cluster.close()

    assert cluster.patches == [("cpu-node", {"nvidia.com/gpu": "2"}), ("cpu-node", {"nvidia.com/gpu": None})]


def test_without_a_command_an_existing_cluster_says_how_to_load_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWARDPOOL_E2E_LOAD_IMAGE", raising=False)

    with pytest.raises(ClusterError, match="set REWARDPOOL_E2E_LOAD_IMAGE to the command"):
        FakeNodes({}).load_image(Path("image.tar"))
