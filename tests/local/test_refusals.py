"""What `rewardpool up` refuses before anything is started, and what it says when an engine does not come up."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from support.command_line import CommandLine, rewardpool
from support.env_vars import env_vars
from support.local_machine import POOL, LocalMachine
from support.neighbour import NOBODY, needs_two_users

from rewardpool_api import Condition, RewardPoolStatus, load_manifest, names
from rewardpool_api.status import RolloutStatus
from rewardpool_local.folder import PoolFolder
from rewardpool_local.launching import revision_of
from rewardpool_local.machine import folders_of, with_code

__all__ = ["rewardpool"]


@pytest.fixture
def here(machine: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> LocalMachine:
    """The machine, also for commands in this process: what is refused starts nothing that needs one of its own."""
    monkeypatch.chdir(machine.home)
    for name in (names.ENV_STATE_DIR, names.ENV_SERVER_PYTHON):
        monkeypatch.setenv(name, machine.environ[name])
    return machine


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        pytest.param({"replica": 2}, 'unknown field "spec.replica"', id="an unknown field"),
        pytest.param({"replicas": "2"}, "spec.replicas in body must be of type integer", id="a wrong type"),
        pytest.param(
            {"autoscaling": {"minReplicas": 3, "maxReplicas": 2, "policy": {"type": "External"}}},
            "spec.autoscaling.minReplicas must not be greater than spec.autoscaling.maxReplicas",
            id="bounds that cross",
        ),
        pytest.param(
            {
                "replicas": 2,
                "autoscaling": {
                    "maxReplicas": 2,
                    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 1}},
                },
            },
            "spec.replicas must not be set beside spec.autoscaling",
            id="replicas beside autoscaling",
        ),
        pytest.param(
            {"router": {"tls": {"secretName": "rm-tls"}}},
            "spec.router.tls is for a cluster",
            id="a certificate for nobody",
        ),
        pytest.param({"router": {"flavor": "nginx"}}, "spec.router.flavor", id="a router that we do not know"),
        pytest.param({"model": {"source": "s4://bucket"}}, "spec.model.source must be hf://", id="a bad source"),
        pytest.param(
            {"model": {"source": "file:///no/such/model"}, "engine": {"name": "vllm"}},
            "spec.model.source: there is no folder /no/such/model",
            id="a model that is not there",
        ),
        pytest.param(
            {"model": {"source": "pvc://models/rm"}, "engine": {"name": "vllm"}},
            "spec.model.source: pvc:// needs Kubernetes",
            id="a claim without a cluster",
        ),
        pytest.param(
            {"engine": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}},
            "spec.engine.env[A].valueFrom needs Kubernetes: write its value here",
            id="a variable from a Secret",
        ),
        pytest.param(
            {"sandbox": {"runtime": "AgentSandbox"}},
            "spec.sandbox.runtime AgentSandbox needs Kubernetes: leave it out",
            id="sandboxes without a cluster",
        ),
        pytest.param(
            {"model": {"source": "python://absent:length", "type": "Function"}},
            "spec.model.source: there is no module absent",
            id="a module that is not there",
        ),
        pytest.param(
            {"model": {"source": "python://functions:lenght", "type": "Function"}},
            "has no function lenght",
            id="a misspelt function",
        ),
    ],
)
def test_a_pool_that_cannot_be_is_refused_by_name(
    here: LocalMachine, rewardpool: CommandLine, spec: dict[str, Any], complaint: str
) -> None:
    ended = rewardpool("up", "-f", str(here.manifest(**spec)))
    assert ended.code == 2, ended.err
    assert complaint in ended.err
    assert not here.folder.path.exists()


def running(machine: LocalMachine, project: Path) -> PoolFolder:
    """The folder of its pool as `up` leaves it, asked for by a manifest in this folder."""
    pool, code = with_code(load_manifest(machine.manifest().read_bytes()), project, machine.environ)
    assert code is not None
    machine.folder.create()
    with machine.folder.code.locked():
        machine.folder.code.keep(code, folders_of(pool))
    machine.folder.write_wanted(pool)
    machine.folder.write_pool(pool)
    return machine.folder


def test_a_pool_that_another_project_runs_is_refused_with_both_folders(
    here: LocalMachine, rewardpool: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    with running(here, other).supervised():
        ended = rewardpool("up", "-f", str(here.manifest()))
    assert ended.code == 2, ended.err
    assert f"{POOL} runs already for the manifest in {other}, and this one is in {here.home}" in ended.err
    assert f"`rewardpool down {POOL}`" in ended.err


@pytest.mark.parametrize("command", ["down", "delete"])
def test_a_manifest_stops_no_pool_of_another_project(
    here: LocalMachine, rewardpool: CommandLine, tmp_path_factory: pytest.TempPathFactory, command: str
) -> None:
    other = tmp_path_factory.mktemp("other")
    with running(here, other).supervised():
        ended = rewardpool(command, "-f", str(here.manifest()))
    assert ended.code == 2, ended.err
    assert f"{POOL} is the pool of the manifest in {other}, and this one is in {here.home}" in ended.err


def test_the_same_manifest_by_a_link_and_from_elsewhere_is_the_same_pool(
    here: LocalMachine,
    rewardpool: CommandLine,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    link = elsewhere / "link.yaml"
    link.symlink_to(here.manifest())
    monkeypatch.chdir(elsewhere)
    with running(here, here.home).supervised():
        ended = rewardpool("up", "-f", str(link))
    assert (ended.code, "nothing to do" in ended.out) == (0, True), ended.err


def test_the_same_code_that_failed_before_is_no_success(here: LocalMachine, rewardpool: CommandLine) -> None:
    folder = running(here, here.home)
    pool = folder.read_wanted()
    assert pool is not None
    failed = Condition(
        type="Progressing",
        status="False",
        reason="RolledBack",
        message="functions.py:3",
        last_transition_time="2026-01-01T00:00:00Z",
        observed_generation=1,
    )
    status = RewardPoolStatus(conditions=[failed], observed_generation=1)
    folder.write_pool(pool.model_copy(update={"status": status}))
    with folder.supervised():
        ended = rewardpool("up", "-f", str(here.manifest()))
    assert (ended.code, "failed before: correct them" in ended.err) == (1, True), ended.err


def test_a_restart_asks_for_the_code_that_there_is_now(here: LocalMachine, rewardpool: CommandLine) -> None:
    folder = running(here, here.home)
    before = folder.read_wanted()
    (here.home / "functions.py").write_text("def length(**_): return 1")
    with folder.supervised():
        ended = rewardpool("restart", POOL, "--local", "--no-wait")
    after = folder.read_wanted()
    assert ended.code == 0, ended.err
    assert before is not None
    assert after is not None
    assert revision_of(after) != revision_of(before)
    assert len(folder.code.others(set())) == 2


def test_a_rollback_asks_for_the_spec_and_the_code_of_the_revision_before(
    here: LocalMachine, rewardpool: CommandLine
) -> None:
    folder = running(here, here.home)
    before = folder.read_wanted()
    assert before is not None
    (here.home / "functions.py").write_text("def length(**_): return 1")
    running(here, here.home)
    after = folder.read_wanted()
    assert after is not None
    folder.write_revisions({revision_of(pool): pool for pool in (before, after)})
    memory = RolloutStatus(
        target_revision=revision_of(after), stable_revision=revision_of(after), previous_revision=revision_of(before)
    )
    status = RewardPoolStatus(current_revision=revision_of(after), rollout=memory)
    folder.write_pool(after.model_copy(update={"status": status}))
    with folder.supervised():
        ended = rewardpool("rollback", POOL, "--local", "--no-wait")
        again = rewardpool("rollback", POOL, "--local", "--no-wait", "--to-revision", "gone")
    assert ended.code == 0, ended.err
    assert folder.read_wanted() == before
    assert (again.code, "revision gone of rl/length is not kept any more" in again.err) == (2, True)


def test_a_port_in_use_is_refused_by_its_number(here: LocalMachine, rewardpool: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = rewardpool("up", "-f", str(here.manifest()), "--port", str(port))
    assert (ended.code, f"port {port} cannot be used" in ended.err) == (2, True)
    assert not here.folder.path.exists()


async def test_an_interpreter_without_the_router_is_refused_with_what_to_install(machine: LocalMachine) -> None:
    bare = machine.home / "bare-python"
    bare.write_text('#!/bin/sh\nexec /usr/bin/env python3 -I -S "$@"\n')
    bare.chmod(0o755)
    machine.environ[names.ENV_SERVER_PYTHON] = str(bare)
    code, said = await machine.run("up", "-f", machine.manifest())
    assert (code, "-m pip install sglang-router==0.3.2" in said) == (2, True)


def test_a_manifest_that_does_not_exist_is_refused(here: LocalMachine, rewardpool: CommandLine) -> None:
    ended = rewardpool("up", "-f", "nowhere.yaml")
    assert (ended.code, "nowhere.yaml" in ended.err) == (2, True)


@pytest.mark.real
async def test_an_engine_that_exits_at_once_is_retried_named_and_given_up(machine: LocalMachine) -> None:
    manifest = machine.manifest(engine={"name": "python", "env": env_vars({"EXIT_AT_ONCE": "1"})})
    code, said = await machine.run("up", "-f", manifest, "--wait-seconds", "12")
    assert code == 1, said
    assert "the weights are gone" in said
    assert "starts again in" in said
    pool = machine.pool()
    serving, degraded = pool.status.condition("Serving"), pool.status.condition("Degraded")
    assert serving is not None
    assert degraded is not None
    assert (serving.reason, degraded.status) == ("GaveUp", "True")
    assert "the weights are gone" in degraded.message
    assert machine.processes() == []


async def test_status_without_any_pool_says_how_to_start_one(machine: LocalMachine) -> None:
    assert "rewardpool up" in (await machine.run("status"))[1]


def test_status_of_all_pools_is_a_list_for_machines(here: LocalMachine, rewardpool: CommandLine) -> None:
    ended = rewardpool("status", "--json")
    assert (ended.code, json.loads(ended.out)) == (0, {"items": []})


@pytest.mark.parametrize("command", [("down", POOL), ("scale", POOL, "2"), ("status", POOL)])
def test_a_pool_that_was_never_started_is_an_error(
    here: LocalMachine, rewardpool: CommandLine, command: tuple[str, ...]
) -> None:
    ended = rewardpool(*command)
    assert (ended.code, POOL in ended.err) == (1, True)


def test_the_crd_is_printed_as_it_is_in_the_repository(rewardpool: CommandLine) -> None:
    file = Path(__file__).parents[2] / "crds" / "rewardpool.dev_rewardpools.yaml"
    assert rewardpool("crd").out == file.read_text()


@pytest.mark.parametrize("namespace", ["../../outside", "..", "a/b", "RL", ""])
def test_a_namespace_that_is_no_name_is_refused(here: LocalMachine, rewardpool: CommandLine, namespace: str) -> None:
    path = here.manifest()
    manifest = json.loads(path.read_text())
    manifest["metadata"]["namespace"] = namespace
    path.write_text(json.dumps(manifest))
    ended = rewardpool("up", "-f", str(path))
    assert ended.code == 2, ended.err
    assert "metadata.namespace" in ended.err
    assert not (here.home / "state").exists()


@needs_two_users
def test_a_state_folder_that_another_user_made_is_refused_by_name(here: LocalMachine, rewardpool: CommandLine) -> None:
    planted = here.home / "state" / "rl"
    planted.mkdir(parents=True)
    os.chown(planted, NOBODY, NOBODY)
    ended = rewardpool("up", "-f", str(here.manifest()))
    os.chown(planted, 0, 0)
    assert ended.code == 1
    assert f"{planted} belongs to user {NOBODY}" in ended.err
    assert list(planted.iterdir()) == []
