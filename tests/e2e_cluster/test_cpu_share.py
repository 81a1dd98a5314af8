"""What pods may compute beside other processes, on control groups made of plain files."""

from pathlib import Path

import pytest

from cluster.cpu_share import share_processors


@pytest.mark.parametrize(
    ("hierarchy", "setting", "value"), [("cpu", "cpu.shares", "4096"), (".", "cpu.weight", "400")], ids=["v1", "v2"]
)
def test_all_pods_weigh_as_much_as_two_sessions_for_each_processor(
    tmp_path: Path, hierarchy: str, setting: str, value: str
) -> None:
    group = tmp_path / hierarchy / "k8s.io"
    group.mkdir(parents=True)
    (tmp_path / hierarchy / "cgroup.procs").touch()
    (group / setting).write_text("1")

    share_processors(root=tmp_path, processors=2)

    assert (group / setting).read_text() == value


def test_a_machine_that_gives_no_control_of_its_processors_is_left_as_it_is(tmp_path: Path) -> None:
    share_processors(root=tmp_path, processors=2)
    assert list(tmp_path.iterdir()) == []
