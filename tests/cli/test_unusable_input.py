"""What cannot be used is refused in one sentence, with its path and what to do, by every command that takes it."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command_line import JARGON, CommandLine, rewardpool
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool_api import names
from rewardpool_cli.errors import FAILED, REFUSED
from rewardpool_local.folder import folder_of

__all__ = ["rewardpool"]

GOOD = (Path(__file__).parents[2] / "examples" / "quickstart" / "pool.yaml").read_text()
POD = "apiVersion: v1\nkind: Pod\n"

TAKES_A_MANIFEST = (
    ("up", "-f"),
    ("down", "-f"),
    ("delete", "-f"),
    ("verify", "--transformers", "-f"),
    ("simulate", "--manifest"),
)
TAKES_A_FILE = (
    *TAKES_A_MANIFEST,
    ("verify", "-f", "good.yaml", "--golden"),
    ("simulate", "--trace"),
)
TAKES_A_NAME = (
    ("down",),
    ("delete",),
    ("status",),
    ("top", "--once"),
    ("explain",),
    ("logs",),
    ("scale", "--", "NAME", "2"),
    ("restart",),
    ("rollback",),
    ("rotate-key",),
    ("verify",),
    ("trace", "record", "--seconds", "2", "-o", "trace.yaml"),
    ("score", "a text", "--pool"),
    ("gateway",),
)
"""The name stands where NAME does, else at the end."""

MANIFESTS = {
    "empty": (b"", "it is empty; a RewardPool begins with apiVersion: "),
    "a comment": (b"# pool\n", "it is empty; a RewardPool begins with apiVersion: "),
    "syntax": (b"spec:\n  model: [", "it is not YAML: line 2, column 11: "),
    "binary": (b"\x7fELF\xff\xfe\x00", "it is not text in UTF-8 (byte 5): save it as UTF-8"),
    "list": (b"- a\n", "it holds a list and not an object"),
    "string": (b"pool\n", "it holds a string and not an object"),
    "kind": (POD.encode(), 'no matches for kind "Pod" in version "v1"; a RewardPool begins with'),
    "version": (GOOD.replace("v1alpha1", "v9").encode(), 'kind "RewardPool" in version "rewardpool.dev/v9"'),
    "no version": (b"kind: RewardPool\n", "apiVersion: Required value: it is rewardpool.dev/v1alpha1"),
    "none of several": (f"{POD}---\n{POD}".encode(), "it holds 2 documents and none is one (Pod, Pod)"),
    "several": (f"{GOOD}---\n{GOOD}".encode(), "it holds 2 of them; give each a file of its own"),
    "no key": (GOOD.replace("source: file:", "type: Generative # file:").encode(), "spec.model.source: Required value"),
    "wrong key": (GOOD.replace("replicas:", "replicaz:").encode(), 'unknown field "spec.replicaz"'),
    "wrong type": (GOOD.replace("replicas: 2", "replicas: [2]").encode(), "spec.replicas in body must be of type int"),
    "deep": (b"[" * 1000, "it cannot be read: it has too many levels"),
}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without pools, and no cluster; the current folder has one good manifest."""
    on_this_machine(monkeypatch, tmp_path / "state")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize("command", TAKES_A_MANIFEST, ids=" ".join)
@pytest.mark.parametrize("mistake", MANIFESTS)
def test_a_manifest_that_is_none_is_refused(rewardpool: CommandLine, command: tuple[str, ...], mistake: str) -> None:
    content, words = MANIFESTS[mistake]
    Path("pool.yaml").write_bytes(content)
    ended = rewardpool(*command, "pool.yaml")
    assert ended.code == REFUSED
    assert ended.sentence.startswith("pool.yaml is not a valid RewardPool: ")
    assert words in ended.sentence


@pytest.mark.parametrize("command", TAKES_A_MANIFEST, ids=" ".join)
def test_a_manifest_may_come_on_standard_input(rewardpool: CommandLine, command: tuple[str, ...]) -> None:
    ended = rewardpool(*command, "-", stdin=POD.encode())
    assert ended.sentence.startswith("standard input is not a valid RewardPool: no matches for kind")


@pytest.mark.parametrize("command", TAKES_A_FILE, ids=" ".join)
def test_a_file_that_is_not_there_is_refused(rewardpool: CommandLine, command: tuple[str, ...]) -> None:
    ended = rewardpool(*command, "absent.yaml")
    assert ended.code == REFUSED
    assert "absent.yaml" in ended.sentence


@pytest.mark.parametrize("command", TAKES_A_FILE, ids=" ".join)
def test_a_folder_in_place_of_a_file_is_refused(rewardpool: CommandLine, command: tuple[str, ...]) -> None:
    Path("pool.d").mkdir()
    ended = rewardpool(*command, "pool.d")
    assert (ended.code, ended.sentence) == (REFUSED, "pool.d is a folder; give the path of a file")


@pytest.mark.parametrize("command", TAKES_A_FILE, ids=" ".join)
def test_a_file_that_may_not_be_read_is_refused(
    rewardpool: CommandLine, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # By hand, since root may read any file.
    Path("secret.yaml").touch()
    real = Path.open

    def refusing(path: Path, *arguments: Any, **rest: Any) -> Any:
        if path.name == "secret.yaml":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **rest)

    monkeypatch.setattr(Path, "open", refusing)
    ended = rewardpool(*command, "secret.yaml")
    words = "secret.yaml cannot be read: permission denied; let this user read it"
    assert (ended.code, ended.sentence) == (REFUSED, words)


@pytest.mark.parametrize("command", TAKES_A_FILE, ids=" ".join)
def test_a_binary_file_is_refused(rewardpool: CommandLine, command: tuple[str, ...]) -> None:
    Path("binary").write_bytes(b"\x7fELF\xff")
    ended = rewardpool(*command, "binary")
    assert ended.code == REFUSED
    assert "not text in UTF-8 (byte 5)" in ended.sentence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "expected an object; `rewardpool trace show sync-grpo` prints a valid trace"),
        ("- a", "expected an object"),
        ("jobs: [", "not YAML: line 1, column 8"),
        ("a: !!int b", "cannot be read"),
    ],
)
def test_a_trace_that_is_none_is_refused(rewardpool: CommandLine, content: str, words: str) -> None:
    Path("trace.yaml").write_text(content)
    ended = rewardpool("simulate", "--trace", "trace.yaml")
    assert ended.code == REFUSED
    assert ended.sentence.startswith("trace.yaml")
    assert words in ended.sentence


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("status", "-o", "xml"), "'xml' is not one of 'json', 'yaml', 'wide', 'name'"),
        (("scale", "a", "two"), "it must be a whole number"),
        (("page", "--port", "0"), "it must be greater than or equal to 1"),
        (("up", "-f", "good.yaml", "--wait-seconds", "soon"), "it must be a number"),
        (("operator", "run", "--health-port", "70000"), "it must be less than or equal to 65535"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_told_in_words(
    rewardpool: CommandLine, command: tuple[str, ...], words: str
) -> None:
    ended = rewardpool(*command)
    said = " ".join(ended.err.replace("│", " ").split())  # it stands in a frame, on several lines
    assert (ended.code, words in said) == (REFUSED, True)
    assert [word for word in JARGON if word in said] == []


@pytest.mark.parametrize("command", TAKES_A_NAME, ids=" ".join)
@pytest.mark.parametrize("name", ["Pool", "a/b/c", "../../etc", "a/", ""])
def test_what_is_no_name_of_a_pool_is_refused(rewardpool: CommandLine, command: tuple[str, ...], name: str) -> None:
    ended = rewardpool(*with_name(command, name))
    assert ended.code == REFUSED
    assert ended.sentence.startswith(f"{name!r} is not the name of a pool: give NAME or NAMESPACE/NAME")


@pytest.mark.parametrize("command", TAKES_A_NAME, ids=" ".join)
def test_a_name_contradicting_the_namespace_is_refused(rewardpool: CommandLine, command: tuple[str, ...]) -> None:
    first, *rest = with_name(command, "rl/a")
    words = ["record", *rest[1:]] if first == "trace" else rest
    begin = [first, words.pop(0)] if first == "trace" else [first]
    ended = rewardpool(*begin, "-n", "other", *words)
    assert ended.code == REFUSED
    assert ended.sentence == "rl/a is in namespace rl, and --namespace says other: drop one of them"


@pytest.mark.parametrize("command", TAKES_A_NAME, ids=" ".join)
def test_a_pool_that_is_not_there_is_told(rewardpool: CommandLine, command: tuple[str, ...]) -> None:
    ended = rewardpool(*with_name(command, "absent"))
    assert ended.code == FAILED
    assert "default/absent" in ended.sentence
    assert "rewardpool up -f" in ended.sentence


@pytest.mark.parametrize("command", [("status", "a"), ("top", "a"), ("scale", "a", "1"), ("logs", "a")], ids=" ".join)
@pytest.mark.parametrize("content", ["", "- a", "a", "a: [", "clusters: 3", "current-context: a"])
def test_a_kubeconfig_that_is_none_is_refused(
    rewardpool: CommandLine, command: tuple[str, ...], content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("kubeconfig").write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(Path("kubeconfig").resolve()))
    ended = rewardpool(*command)
    assert ended.code == REFUSED
    assert ended.sentence.startswith("no cluster can be asked: ")
    assert "kubeconfig" in ended.sentence


def test_a_cluster_that_does_not_answer_is_told(rewardpool: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    # Nothing listens there any more.
    kubeconfig = f"""
current-context: a
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: a, user: {{token: t}}}}]
"""
    Path("kubeconfig").write_text(kubeconfig)
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")
    ended = rewardpool("status")
    assert ended.code == FAILED
    assert f"http://127.0.0.1:{port} does not answer" in ended.sentence
    assert "see that the cluster runs" in ended.sentence


def test_a_port_in_use_is_told(rewardpool: CommandLine, machine: Path) -> None:
    write_local_pool(machine / "state", model_type="Function", source="python://m:f")
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = f"127.0.0.1:{server.getsockname()[1]}"
        ended = rewardpool("gateway", POOL, "--listen", listen)
    words = f"--listen: cannot listen at {listen}: Address already in use; give another HOST:PORT"
    assert (ended.code, ended.sentence) == (REFUSED, words)


def test_a_port_of_the_page_that_is_in_use_is_told(rewardpool: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        ended = rewardpool("page", "--port", port)
    words = f"port {port} cannot be listened at: Address already in use; choose another by --port"
    assert (ended.code, ended.sentence) == (FAILED, words)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_bytes(b"\xff")], ids=["a folder", "binary"])
def test_a_key_file_that_is_none_is_refused(rewardpool: CommandLine, make: Callable[[Path], object]) -> None:
    make(Path("key"))
    ended = rewardpool("gateway", "a", "--key-file", "key")
    assert ended.code == REFUSED
    assert ended.sentence.startswith("--key-file: key ")


def test_the_state_of_another_version_is_told_with_how_to_remove_it(rewardpool: CommandLine, machine: Path) -> None:
    folder = folder_of("default/old", {names.ENV_STATE_DIR: str(machine / "state")})
    folder.create()
    (folder.path / names.STATE_FILE).write_text('{"spec": {"gone": 1}}')
    assert "`rewardpool delete default/old` removes" in rewardpool("status", "old").sentence
    assert rewardpool("delete", "old").code == 0
    assert not folder.path.exists()


def with_name(command: tuple[str, ...], name: str) -> list[str]:
    """The command's words with that name in its place."""
    if "NAME" in command:
        return [name if word == "NAME" else word for word in command if word != "--"]
    return [*command, name]
