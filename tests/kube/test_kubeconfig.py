"""Credentials of a kubeconfig, read as kubectl reads them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_asyncio.client import Configuration

from rewardpool_kube.kubeconfig import load_kubeconfig

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
    configuration = Configuration()
    await load_kubeconfig(configuration, files=files)
    return str(configuration.api_key["BearerToken"])


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
