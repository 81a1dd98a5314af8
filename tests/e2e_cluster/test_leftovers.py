"""What a killed run leaves is removed, and nothing else."""

import os
from pathlib import Path

import pytest

from cluster import leftovers
from cluster.leftovers import Record


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(leftovers, "disconnect", names.append)
    monkeypatch.setattr(leftovers, "remove_cgroups", lambda *groups: names.extend(groups))
    return names


def a_run(state: Path, record: Record) -> Path:
    folder = state / "node-200"
    (folder / "control-plane").mkdir(parents=True)
    (folder / "control-plane" / "ca.key").touch()
    record.write(folder)
    return folder


def test_a_dead_runs_interface_control_group_and_folder_go(tmp_path: Path, removed: list[str]) -> None:
    dead = Record(owner_pid=os.getpid(), owner_started="0", interface="rewardpool200", cgroup="rewardpool-node-200")
    folder = a_run(tmp_path, dead)

    leftovers.sweep(say=lambda line: None, state=tmp_path)

    assert removed == ["rewardpool200", "rewardpool-node-200"]
    assert not folder.exists()


def test_the_control_groups_of_the_containers_that_ran_go_with_a_dead_run(tmp_path: Path, removed: list[str]) -> None:
    dead = Record(owner_pid=os.getpid(), owner_started="0", interface="rewardpool200", cgroup="rewardpool-node-200")
    folder = a_run(tmp_path, dead)
    tasks = folder / "containerd" / "io.containerd.runtime.v2.task" / "k8s.io"
    for name in ("a" * 64, "b" * 64, "no container"):
        (tasks / name).mkdir(parents=True)

    leftovers.sweep(say=lambda line: None, state=tmp_path)

    assert removed[2:] == [f"k8s.io/{'a' * 64}", f"k8s.io/{'b' * 64}"]


def test_a_living_runs_things_stay(tmp_path: Path, removed: list[str]) -> None:
    alive = Record.of_this_process(interface="rewardpool200", cgroup="rewardpool-node-200")
    folder = a_run(tmp_path, alive)

    leftovers.sweep(say=lambda line: None, state=tmp_path)

    assert removed == []
    assert folder.exists()


def test_a_folder_without_a_record_is_not_ours_to_remove(tmp_path: Path, removed: list[str]) -> None:
    (tmp_path / "results").mkdir()

    leftovers.sweep(say=lambda line: None, state=tmp_path)

    assert (tmp_path / "results").exists()


def test_control_groups_go_in_every_hierarchy(tmp_path: Path) -> None:
    for hierarchy in ("memory", "cpu"):
        (tmp_path / hierarchy / "ours" / "pod").mkdir(parents=True)
        (tmp_path / hierarchy / "theirs").mkdir()
        for container in ("ours", "theirs"):
            (tmp_path / hierarchy / "k8s.io" / container).mkdir(parents=True)

    leftovers.remove_cgroups("ours", "k8s.io/ours", root=tmp_path)

    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["k8s.io", "k8s.io", "theirs", "theirs"]
    assert sorted(path.name for path in tmp_path.glob("*/k8s.io/*")) == ["theirs", "theirs"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "k8s.io", "k8s.io/", "k8s.io/..", "k8s.io/a/b"])
def test_a_name_that_is_not_one_control_group_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="does not name one control group"):
        leftovers.remove_cgroups(name, root=tmp_path)


def test_a_process_is_known_by_its_start_as_well_as_its_id() -> None:
    assert leftovers.process_started(os.getpid()) == leftovers.process_started(os.getpid())
    # Not the parent, which may have begun within the same hundredth of a second.
    assert leftovers.process_started(os.getpid()) != leftovers.process_started(1)
    assert leftovers.process_started(2**22 + 1) is None
