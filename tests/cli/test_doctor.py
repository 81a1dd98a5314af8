"""`rewardpool doctor`: lines and exit code, without a cluster and with one that says nothing."""

import json
import socket
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.stand_in_nvidia_smi import stand_in_nvidia_smi
from typer.testing import CliRunner

from rewardpool.sandbox.parent import _Zygotes
from rewardpool_api import names
from rewardpool_api.schema import custom_resource_definition
from rewardpool_cli import app
from rewardpool_cli.doctor import cluster, machine
from rewardpool_cli.doctor.cluster import ClusterAnswers, Unknown, fields_of
from rewardpool_cli.doctor.finding import Finding, broken
from rewardpool_cli.doctor.runner import Check, examine
from rewardpool_local.gpus import Gpu
from rewardpool_local.machine import Interpreter

FIELDS = fields_of(custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
SILENT = Unknown("no answer within 5 s", answered=False)
REFUSED = Unknown("renew them")
RIGHTS: dict[str, bool | Unknown] = {"get": True, "list": True, "create": True}
OPERATORS = {"rewardpool-system/rewardpool": version("rewardpool")}
NAMES = [
    "API server",
    f"CRD {names.PLURAL}.{names.GROUP}",
    "operator",
    *(f"right to {verb} rewardpools" for verb in RIGHTS),
]


def finding(**given: Any) -> Finding:
    return Finding(**{"place": "machine", "name": "it", "state": "ok", "found": "", "remedy": "do this", **given})


def seen(**given: Any) -> ClusterAnswers:
    said = {"version": "v1.34.4", "served": [names.VERSION], "fields": FIELDS, "operators": OPERATORS}
    return ClusterAnswers(**{**said, "rights": RIGHTS, **given})


@pytest.mark.parametrize(
    ("given", "is_broken"),
    [
        ({"state": "ok", "essential": True}, False),
        ({"state": "warning", "essential": True}, False),
        ({"state": "missing", "essential": True}, True),
        ({"state": "failed", "essential": True}, True),
        ({"state": "failed", "essential": False}, False),
        ({"state": "failed", "essential": True, "place": "cluster"}, False),
    ],
)
def test_only_what_pools_there_need_and_have_not_is_broken(given: dict[str, Any], is_broken: bool) -> None:
    assert bool(broken([finding(**given)], "machine")) is is_broken


def test_what_code_in_a_sandbox_reaches_is_named() -> None:
    assert machine.sandbox_line([], 7).found.startswith("Landlock 7 and seccomp; tried and refused: a file, writing, ")
    assert machine.sandbox_line([], 0).found.startswith("user and mount namespaces and seccomp; tried and refused: ")
    line = machine.sandbox_line(["a socket"], 7)
    assert (line.state, line.found) == ("failed", "code that a policy wrote reaches a socket")


def test_a_machine_without_sandboxes_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewardpool.sandbox.parent.missing", lambda: "Landlock in this kernel")
    monkeypatch.setattr("rewardpool.sandbox.runner.zygotes", _Zygotes())
    [line] = next(check for check in machine.checks({}) if check.name == "sandbox").run()
    assert (line.state, line.found) == ("missing", "this machine lacks Landlock in this kernel")


def test_a_line_that_is_not_ok_has_a_remedy() -> None:
    with pytest.raises(ValueError, match="no remedy"):
        finding(state="missing", remedy="")


@pytest.mark.parametrize(
    ("given", "states"),
    [
        ({}, ["ok", "ok", "ok", "ok", "ok", "ok"]),
        ({"version": "v1.29.0+k3s1"}, ["warning", "ok", "ok", "ok", "ok", "ok"]),
        ({"version": SILENT, "served": SILENT}, ["failed", "failed", "ok", "ok", "ok", "ok"]),
        ({"served": []}, ["ok", "missing", "ok", "ok", "ok", "ok"]),
        ({"served": ["v2"]}, ["ok", "failed", "ok", "ok", "ok", "ok"]),
        ({"fields": FIELDS - {"spec.replicas"}}, ["ok", "warning", "ok", "ok", "ok", "ok"]),
        ({"fields": FIELDS | {"spec.other"}}, ["ok", "warning", "ok", "ok", "ok", "ok"]),
        ({"operators": {"a/b": "0.0.1"}}, ["ok", "ok", "warning", "ok", "ok", "ok"]),
        ({"operators": {}}, ["ok", "ok", "missing", "ok", "ok", "ok"]),
        ({"operators": REFUSED}, ["ok", "ok", "warning", "ok", "ok", "ok"]),
        ({"operators": SILENT}, ["ok", "ok", "failed", "ok", "ok", "ok"]),
        ({"fields": REFUSED}, ["ok", "warning", "ok", "ok", "ok", "ok"]),
        (
            {"rights": {"get": True, "list": REFUSED, "create": False}},
            ["ok", "ok", "ok", "ok", "failed", "missing"],
        ),
    ],
)
def test_what_an_api_server_says_becomes_lines(given: dict[str, Any], states: list[str]) -> None:
    lines = cluster.lines(seen(**given), namespace="rl")
    assert [line.name for line in lines] == NAMES
    assert [line.state for line in lines] == states


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"version": SILENT}, ["API server"]),
        ({"served": []}, [NAMES[1]]),
        ({"rights": {**RIGHTS, "get": False}}, ["right to get rewardpools"]),
        ({"rights": {**RIGHTS, "create": False}}, []),
    ],
)
def test_pools_of_a_cluster_need_it_its_crd_and_the_right_to_read_them(
    given: dict[str, Any], needed: list[str]
) -> None:
    assert [line.name for line in broken(cluster.lines(seen(**given), namespace="rl"), "cluster")] == needed


def test_an_operator_of_another_version_is_told_from_this_program() -> None:
    line = cluster.lines(seen(operators={"rewardpool-system/rewardpool": "9.0.0"}), namespace="rl")[2]
    assert line.found == f"9.0.0 (rewardpool-system/rewardpool), and this program is {version('rewardpool')}"


def test_an_older_crd_is_told_by_the_fields_it_lacks() -> None:
    line = cluster.lines(seen(fields=FIELDS - {"spec.replicas", "status.url"}), namespace="rl")[1]
    assert "it has no spec.replicas, status.url" in line.found


@pytest.mark.parametrize(
    ("modules", "needed"),
    [
        ({"sglang_router": "0.3.2"}, []),
        ({"smg": "1.13.0"}, []),
        ({"vllm": "0.32"}, ["router sglang-router"]),
    ],
)
def test_pools_of_a_machine_need_one_router_and_no_engine(modules: dict[str, str], needed: list[str]) -> None:
    lines = machine.server_lines("python", Interpreter(python="3.11.7", modules=modules))
    assert [line.name for line in broken(lines, "machine")] == needed
    assert {line.name for line in lines if line.state == "ok"} >= {"server python"}


def test_an_engine_that_lacks_a_part_names_it_and_how_to_get_it() -> None:
    seen = Interpreter(python="3.11.7", modules={"torch": "2", "transformers": "5", "prometheus_client": "0.21"})
    (line,) = [line for line in machine.server_lines("py", seen) if line.name == "engine transformers"]
    assert (line.state, line.found) == ("missing", "py has no uvicorn")
    assert "py -m pip install uvicorn" in line.remedy


@pytest.mark.parametrize(
    ("gpus", "owners", "state", "found"),
    [
        (None, {}, "missing", "no nvidia-smi"),
        ((), {}, "missing", "leave none"),
        ((Gpu("0", "a"), Gpu("1", "b")), {}, "ok", "2, of which no pool has 0, 1"),
        ((Gpu("0", "a"), Gpu("1", "b")), {"a": "rl/x"}, "ok", "2, of which no pool has 1; GPU 0 is rl/x's"),
        ((Gpu("0", "a"),), {"a": "rl/x"}, "warning", "1, of which no pool has none; GPU 0 is rl/x's"),
    ],
)
def test_gpus_are_told_with_the_pools_that_have_them(gpus: Any, owners: Any, state: str, found: str) -> None:
    line = machine.gpus_line(gpus, owners)
    assert line.state == state
    assert found in line.found


def test_a_pool_that_died_is_told_with_what_ends_its_processes() -> None:
    (line,) = machine.pools_lines(["rl/y at http://z"], {"rl/x": 2}, {})
    assert (line.state, line.found) == ("warning", "rl/x died and left 2 processes")
    assert "rewardpool down rl/x" in line.remedy


@pytest.mark.parametrize(("hard", "state"), [(1024, "warning"), (4096, "ok"), (-1, "ok")])
def test_the_limit_that_nobody_can_raise_is_the_one_that_counts(hard: int, state: str) -> None:
    assert machine.open_files_line(256, hard).state == state


def test_a_check_that_hangs_or_raises_is_a_line_of_its_own() -> None:
    ever = threading.Event()

    def hangs() -> list[Finding]:
        ever.wait()
        return []

    def raises() -> list[Finding]:
        raise OSError("disk on fire")

    checks = [
        Check(place="machine", name="hangs", run=hangs, seconds=0.05, essential=True),
        Check(place="machine", name="raises", run=raises, seconds=5),
        Check(place="machine", name="well", run=lambda: [finding()], seconds=5),
    ]
    try:
        found = examine(checks)
    finally:
        ever.set()
    assert [(line.name, line.state) for line in found] == [("hangs", "failed"), ("raises", "failed"), ("it", "ok")]
    assert "disk on fire" in found[1].found
    assert found[0].essential


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with an empty state folder, no cluster, and a nvidia-smi that finds one GPU."""
    stand_in_nvidia_smi(tmp_path / "bin", ["0, GPU-a"])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv(names.ENV_STATE_DIR, str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv(names.ENV_SERVER_PYTHON, raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def says(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code, and lines by name."""
    done = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert done.stdout, done.exception
    return done.exit_code, {line["name"]: line for line in json.loads(done.stdout)["findings"]}


def test_without_a_cluster_the_machine_is_what_is_needed(here: Path) -> None:
    code, lines = says()
    # The tests' own interpreter has no router.
    assert code == 1
    assert lines["router sglang-router"]["state"] == "missing"
    assert "pip install sglang-router" in lines["router sglang-router"]["remedy"]
    assert lines["kubeconfig"]["state"] == "missing"
    assert lines["GPUs"]["found"] == "1, of which no pool has 0"
    assert lines["state folder"]["state"] == "ok"
    assert not (here / "state").exists()


def test_a_server_python_that_is_none_is_needed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.ENV_SERVER_PYTHON, "/no/such/python")
    code, lines = says("--local")
    assert code == 1
    assert "/no/such/python, not an executable file" in lines["server python"]["found"]
    assert "kubeconfig" not in lines


def test_a_state_folder_that_is_a_file_is_needed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "state").write_text("")
    _, lines = says("--local")
    assert (lines["state folder"]["state"], lines["state folder"]["essential"]) == ("failed", True)


def test_the_table_ends_with_what_is_needed_and_broken(here: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--cluster"])
    assert done.exit_code == 1
    assert done.stdout.strip().endswith("pools in the cluster need: kubeconfig")


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe", b"- a", b"words", b"{a: ["])
def test_a_kubeconfig_that_is_none_is_told_as_that(here: Path, content: bytes) -> None:
    (here / "kubeconfig").write_bytes(content)
    code, lines = says("--cluster")
    assert (code, lines["kubeconfig"]["state"]) == (1, "failed")
    assert f"{here / 'kubeconfig'} is not a kubeconfig" in lines["kubeconfig"]["found"]


@pytest.fixture
def silent(here: Path) -> Iterator[Path]:
    """A kubeconfig whose API server takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = {"server": f"https://127.0.0.1:{listening.getsockname()[1]}"}
        config = {
            "clusters": [{"name": "c", "cluster": server}],
            "contexts": [{"name": "quiet", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "x"}}],
            "current-context": "quiet",
        }
        (here / "kubeconfig").write_text(yaml.safe_dump(config))
        yield here


def test_a_silent_api_server_is_a_line_and_the_machine_is_told_as_well(
    silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CALL_SECONDS", 0.3)
    code, lines = says()
    assert code == 1
    assert "context quiet" in lines["kubeconfig"]["found"]
    assert {lines[name]["state"] for name in NAMES} == {"failed"}
    assert "no answer within" in lines["API server"]["found"]
    assert lines[NAMES[1]]["found"] == "not known"
    assert lines["state folder"]["state"] == "ok"
