"""Where a pool is looked for."""

from pathlib import Path

import pytest

from rewardpool_api import names
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.targets import Where, locate
from rewardpool_kube import configuration


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """A machine with one pool, `default/here`, and without a cluster."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    folder = tmp_path / "state" / "default" / "here"
    folder.mkdir(parents=True)
    (folder / names.STATE_FILE).write_text("{}")
    return {names.ENV_STATE_DIR: str(tmp_path / "state")}


@pytest.fixture
def with_cluster(environ, tmp_path):
    """The same, with a kubeconfig."""
    file = tmp_path / "kubeconfig"
    file.touch()
    return {**environ, "KUBECONFIG": str(file)}


@pytest.mark.parametrize(
    ("name", "where", "plugin", "is_local"),
    [
        ("here", Where(), False, True),
        ("elsewhere", Where(), False, False),
        ("here", Where(local=False), False, False),
        ("elsewhere", Where(local=True), False, True),
        ("here", Where(context="prod"), False, False),
        ("here", Where(namespace="rl"), False, False),
        ("rl/here", Where(), False, False),
        ("here", Where(), True, False),
        ("here", Where(local=True), True, True),
        (None, Where(), False, True),
        (None, Where(namespace="rl"), False, False),
        (None, Where(), True, False),
    ],
)
def test_a_pool_of_this_machine_comes_first_unless_said_otherwise(with_cluster, name, where, plugin, is_local):
    assert locate(name, where, environ=with_cluster, plugin=plugin).is_local == is_local


def test_without_a_cluster_this_machine_is_asked(environ):
    assert locate("elsewhere", Where(), environ=environ, plugin=False).is_local


def test_a_pod_is_in_a_cluster(environ, tmp_path, monkeypatch):
    monkeypatch.setattr(configuration, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").touch()
    in_pod = {**environ, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert not locate("elsewhere", Where(), environ=in_pod, plugin=False).is_local


@pytest.mark.parametrize(
    ("name", "where", "namespace"),
    [
        ("rm", Where(), None),
        ("rm", Where(namespace="rl"), "rl"),
        ("rl/rm", Where(), "rl"),
        ("rl/rm", Where(namespace="rl"), "rl"),
    ],
)
def test_the_namespace_is_that_of_the_name_or_of_the_option(environ, name, where, namespace):
    target = locate(name, where, environ=environ, plugin=False)
    assert (target.namespace, target.name) == (namespace, "rm")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (Where(namespace="other"), "--namespace says other"),
        (Where(local=True, context="prod"), "--context names a cluster"),
    ],
)
def test_what_contradicts_itself_is_refused(environ, where, words):
    with pytest.raises(RefusedError, match=words):
        locate("rl/rm", where, environ=environ, plugin=False)
