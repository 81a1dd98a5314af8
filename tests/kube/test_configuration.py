"""Where a cluster is found, and credentials of a kubeconfig, read as kubectl reads them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from rewardpool_kube import configuration
from rewardpool_kube.configuration import is_configured, load_access
from rewardpool_kube.errors import CredentialsError

CREDENTIAL = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}


def kubeconfig(folder: Path, user: dict[str, Any]) -> Path:
    """A file with one context."""
    folder.mkdir()
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example"}}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    return folder / "config"


def plugin(folder: Path) -> None:
    """A plugin that gives a token, in the folder's bin/."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "login"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(CREDENTIAL)}'\n")
    program.chmod(0o755)


def execution(command: str) -> dict[str, Any]:
    return {"exec": {"apiVersion": CREDENTIAL["apiVersion"], "command": command, "interactiveMode": "Never"}}


async def token(files: str) -> str:
    access = await load_access({"KUBECONFIG": files})
    return str(access.configuration.api_key["BearerToken"])


async def test_a_token_file_ends_before_its_last_newline(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "a", {"tokenFile": "token"})
    (tmp_path / "a" / "token").write_text("secret\n")
    assert await token(str(file)) == "Bearer secret"


@pytest.mark.parametrize("command", ["bin/login", "./bin/login", "../a/bin/login"])
async def test_a_plugin_with_a_slash_is_relative_to_the_file_that_names_it(tmp_path: Path, command: str) -> None:
    file = kubeconfig(tmp_path / "a", execution(command))
    plugin(tmp_path / "a")
    other = kubeconfig(tmp_path / "b", {"token": "of another user of that name"})
    assert await token(os.pathsep.join([str(file), str(other)])) == "Bearer made"


async def test_a_plugin_without_a_slash_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = kubeconfig(tmp_path / "a", execution("login"))
    plugin(tmp_path / "a")
    monkeypatch.setenv("PATH", str(tmp_path / "a" / "bin"), prepend=os.pathsep)
    assert await token(str(file)) == "Bearer made"


async def test_without_a_cluster_it_is_said_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with pytest.raises(CredentialsError, match=r"none is configured; set \$KUBECONFIG, or run in a pod"):
        await load_access({})


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=str(tmp_path / "absent")):
        await load_access({"KUBECONFIG": str(tmp_path / "absent")}, context="c")


async def test_a_context_has_its_namespace(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "a", {"token": "t"})
    config = yaml.safe_load(file.read_text())
    config["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "rl"}})
    file.write_text(yaml.safe_dump(config))
    environ = {"KUBECONFIG": str(file)}
    access, other = await load_access(environ), await load_access(environ, context="other")
    assert [(each.context, each.namespace) for each in (access, other)] == [("c", "default"), ("other", "rl")]


def test_a_pod_without_a_token_has_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(configuration, "SERVICE_ACCOUNT", tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert not is_configured(environ)
    (tmp_path / "token").touch()
    assert is_configured(environ)
