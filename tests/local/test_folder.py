"""What a pool's state folder says of a pool that runs, that was stopped, and whose supervisor was killed."""

import json
from pathlib import Path

import pytest
from support.decide_builders import a_pool

from rewardpool_api import Condition, RewardPool, RewardPoolStatus
from rewardpool_local.folder import AlreadyRunningError, PoolFolder, StateUnreadableError, SupervisorRecord, stopped
from rewardpool_runtime.state_files import is_supervised


@pytest.fixture
def folder(tmp_path: Path) -> PoolFolder:
    folder = PoolFolder(tmp_path / "rl" / "rm")
    folder.create()
    return folder


def ready_pool() -> RewardPool:
    serving = Condition(type="Serving", status="True", reason="Serving", last_transition_time="2026-01-01T00:00:00Z")
    return a_pool(RewardPoolStatus(url="http://127.0.0.1:1", ready_replicas=1, conditions=[serving]))


def test_an_object_is_read_as_it_was_written(folder: PoolFolder) -> None:
    folder.write_pool(ready_pool())
    assert folder.read_pool() == ready_pool()


def test_nothing_was_published_yet(folder: PoolFolder) -> None:
    assert (folder.read_pool(), folder.read_wanted(), folder.read_supervisor()) == (None, None, None)


def test_a_supervised_pool_is_taken_at_its_word(folder: PoolFolder) -> None:
    folder.write_pool(ready_pool())
    with folder.supervised():
        assert folder.read_pool_as_it_is() == ready_pool()


def test_a_pool_whose_supervisor_is_gone_is_not_ready_and_has_no_url(folder: PoolFolder) -> None:
    folder.write_pool(ready_pool())
    with folder.supervised():
        pass
    pool = folder.read_pool_as_it_is()
    assert pool is not None
    assert pool.status.url is None
    for kind in ("Ready", "Serving"):
        condition = pool.status.condition(kind)  # type: ignore[arg-type]
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "SupervisorGone")


def test_a_pool_that_was_stopped_says_that_and_not_that_its_supervisor_is_gone(folder: PoolFolder) -> None:
    folder.write_pool(stopped(ready_pool(), reason="Stopped", message="it was stopped"))
    with folder.supervised():
        pass
    pool = folder.read_pool_as_it_is()
    assert pool is not None
    serving = pool.status.condition("Serving")
    assert serving is not None
    assert serving.reason == "Stopped"


def test_there_is_one_supervisor_at_a_time(folder: PoolFolder) -> None:
    with folder.supervised():
        assert is_supervised(folder.path)
        with pytest.raises(AlreadyRunningError, match="rl/rm is already running"), folder.supervised():
            pass
    assert not is_supervised(folder.path)


def test_a_state_file_that_no_supervisor_wrote_is_taken_at_its_word(folder: PoolFolder) -> None:
    assert not is_supervised(folder.path)
    folder.write_pool(ready_pool())
    assert is_supervised(folder.path)


def test_what_revisions_are_made_of_is_read_as_it_was_written(folder: PoolFolder) -> None:
    assert folder.read_revisions() == {}
    folder.write_revisions({"5f1c0de5": ready_pool()})
    assert folder.read_revisions() == {"5f1c0de5": a_pool()}


@pytest.mark.parametrize("written", [b"", b"[]", b'{"5f1c0de5": {}}', b'{"5f1c', b"\xff"])
def test_revisions_that_no_supervisor_wrote_are_refused_by_their_file(folder: PoolFolder, written: bytes) -> None:
    (folder.path / "revisions.json").write_bytes(written)
    with pytest.raises(StateUnreadableError, match=r"revisions\.json is not what this version"):
        folder.read_revisions()


def test_fields_that_another_version_has_under_another_name_are_left_out(folder: PoolFolder) -> None:
    folder.write_pool(ready_pool())
    folder.write_wanted(ready_pool())
    folder.write_revisions({"5f1c0de5": ready_pool()})
    for file in folder.path.glob("*.json"):
        file.write_text(file.read_text().replace("requestTimeoutSeconds", "attemptTimeoutSeconds"))
    assert (folder.read_pool(), folder.read_wanted()) == (ready_pool(), a_pool())
    assert folder.read_revisions() == {"5f1c0de5": a_pool()}


def test_keys_are_others_whenever_they_are_made(folder: PoolFolder) -> None:
    files, seen = (folder.key_file, folder.admin_key_file), set()
    for _ in range(2):
        folder.new_keys()
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
        seen.update(file.read_text() for file in files)
    assert len(seen) == 4


def test_others_of_the_machine_cannot_look_into_the_folder(folder: PoolFolder) -> None:
    assert folder.path.stat().st_mode & 0o077 == 0


def test_a_record_of_the_supervisor_is_read_back_and_forgotten(folder: PoolFolder) -> None:
    record = SupervisorRecord(pid=1, run_id="a")
    folder.write_supervisor(record)
    assert folder.read_supervisor() == record
    folder.forget_supervisor()
    assert folder.read_supervisor() is None


def test_the_state_file_is_the_object_as_kubernetes_shows_it(folder: PoolFolder) -> None:
    folder.write_pool(ready_pool())
    written = json.loads((folder.path / "pool.json").read_text())
    assert (written["kind"], written["status"]["readyReplicas"]) == ("RewardPool", 1)
