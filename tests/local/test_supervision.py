"""What a person, a shell or a full machine does to a pool's files and environment ends no supervision."""

import errno
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.fleet import eventually
from support.kube_builders import a_pool
from support.local_machine import LocalMachine

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_local.folder import PoolFolder, StateUnreadableError, annotated
from rewardpool_local.function_code import read_code
from rewardpool_local.supervisor import Supervisor, SupervisorSettings


@pytest.fixture
def folder(tmp_path: Path) -> PoolFolder:
    folder = PoolFolder(tmp_path / "rl" / "rm")
    folder.create()
    folder.write_wanted(a_pool(replicas=1))
    return folder


class FailingSupervisor(Supervisor):
    """One whose passes decide to change nothing, or fail with what the test says."""

    error: Exception | None = None

    async def _pass(self, parts: Any) -> None:
        if self.error is not None:
            raise self.error
        fleet = SimpleNamespace(describe=lambda: ())
        self._publish(SimpleNamespace(events=(), status=RewardPoolStatus()), fleet)  # type: ignore[arg-type]


def supervisor_of(folder: PoolFolder, **settings: Any) -> FailingSupervisor:
    wanted = folder.read_wanted()
    assert wanted is not None
    return FailingSupervisor(folder, wanted, SupervisorSettings(python="python3", **settings), {})


def degraded(folder: PoolFolder) -> str:
    pool = folder.read_pool()
    assert pool is not None
    condition = pool.status.condition("Degraded")
    return "" if condition is None else f"{condition.status} {condition.reason} {condition.message}"


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), KeyError("name"), UnicodeError()])
async def test_a_pass_that_fails_ends_no_loop_and_is_published(folder: PoolFolder, error: Exception) -> None:
    supervisor = supervisor_of(folder)
    supervisor.error = error
    await supervisor._try_pass(None)  # type: ignore[arg-type]
    assert degraded(folder).startswith("True ReconcileFailed a pass failed")


async def test_a_change_that_could_not_be_read_is_read_by_the_next_pass(
    folder: PoolFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = supervisor_of(folder)
    folder.write_wanted(a_pool(replicas=3))
    read = folder.read_wanted

    def no_more_files() -> RewardPool | None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(folder, "read_wanted", no_more_files)
    await supervisor._try_pass(None)  # type: ignore[arg-type]
    monkeypatch.setattr(folder, "read_wanted", read)
    await supervisor._try_pass(None)  # type: ignore[arg-type]
    assert supervisor._pool.spec.replicas == 3


async def test_a_wanted_file_that_is_removed_wants_nothing_else(folder: PoolFolder) -> None:
    supervisor = supervisor_of(folder)
    (folder.path / "wanted.json").unlink()
    await supervisor._try_pass(None)  # type: ignore[arg-type]
    assert supervisor._failed_with == ""
    assert supervisor._pool.spec.replicas == 1


async def test_a_wanted_file_of_a_newer_version_is_reported_and_the_last_one_holds(folder: PoolFolder) -> None:
    supervisor = supervisor_of(folder)
    (folder.path / "wanted.json").write_text(json.dumps({"spec": {"fromTheFuture": 1}}))
    with pytest.raises(StateUnreadableError):
        folder.read_wanted()
    await supervisor._try_pass(None)  # type: ignore[arg-type]
    assert "cannot be read, the last one holds" in degraded(folder)
    assert supervisor._pool.spec.replicas == 1


async def test_a_wanted_file_that_stays_unreadable_is_logged_once_and_stays_published(
    folder: PoolFolder, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervisor_of(folder)
    (folder.path / "wanted.json").write_text(json.dumps({"spec": {"fromTheFuture": 1}}))
    published = []
    for _ in range(3):
        await supervisor._try_pass(None)  # type: ignore[arg-type]
        published.append(folder.read_pool())
    assert [record.message for record in caplog.records if "cannot be read" in record.message] == [supervisor._unread]
    assert published[0] is not None
    assert "cannot be read, the last one holds" in degraded(folder)
    assert published == [published[0]] * 3


def test_a_pool_of_which_no_pass_succeeds_is_given_up(folder: PoolFolder) -> None:
    supervisor = supervisor_of(folder, give_up_seconds=0.0)
    supervisor._failed_with = "a pass failed, the next one tries again: No space left on device"
    assert supervisor._is_hopeless()
    assert "No space left on device" in supervisor._why_hopeless()


@pytest.mark.real
async def test_a_pool_whose_files_were_removed_goes_on_replacing_workers(machine: LocalMachine) -> None:
    await machine.up()
    for removed in ("logs/router.log", "logs/worker-1.log", "wanted.json"):
        (machine.folder.path / removed).unlink()
    pid = machine.pool().status.workers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    async def replaced() -> bool:
        [worker] = machine.pool().status.workers
        return worker.phase == "Ready" and worker.pid != pid

    await eventually(replaced, what="the worker has a new process", seconds=40)

    async def serves() -> bool:
        condition = machine.pool().status.condition("Serving")
        return condition is not None and condition.status == "True"

    await eventually(serves, what="the router has it", seconds=40)
    assert await machine.run("score", "hello world") == (0, "11.0\n")


@pytest.mark.real
# One launcher drops the variables for both.
@pytest.mark.parametrize("flavor", ["sglang-router", pytest.param("smg", marks=pytest.mark.long)])
async def test_a_proxy_in_the_shell_is_not_asked_for_what_is_on_this_machine(
    machine: LocalMachine, flavor: str
) -> None:
    nobody = "http://127.0.0.1:9"
    machine.environ |= {"HTTP_PROXY": nobody, "http_proxy": nobody, "ALL_PROXY": nobody}
    machine.environ.pop("NO_PROXY", None)
    machine.environ.pop("no_proxy", None)
    await machine.up(router={"flavor": flavor})
    assert await machine.run("score", "hello world") == (0, "11.0\n")


def test_code_that_no_revision_and_no_request_needs_goes(folder: PoolFolder, tmp_path: Path) -> None:
    digests = {}
    for name in ("served", "asked", "left"):
        (tmp_path / f"{name}.py").write_text(f"# {name}")
        code = read_code(name, [tmp_path])
        with folder.code.locked():
            folder.code.keep(code, [tmp_path])
        digests[name] = code.digest
    supervisor = supervisor_of(folder)
    folder.write_wanted(annotated(a_pool(replicas=1), {names.ANNOTATION_CODE: digests["asked"]}))
    with folder.code.locked():
        supervisor._forget_code(frozenset({digests["served"]}))
        assert set(folder.code.others(set())) == set(digests.values()), "while somebody adds one"
    supervisor._forget_code(frozenset({digests["served"]}))
    assert set(folder.code.others(set())) == {digests["served"], digests["asked"]}
