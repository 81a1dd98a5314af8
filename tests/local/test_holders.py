"""Who holds a pool awake, by locked files."""

import fcntl
from pathlib import Path

from rewardpool_local import holders


def test_a_file_that_is_locked_holds_and_one_that_is_not_is_removed(tmp_path: Path) -> None:
    living, dead, unnamed = tmp_path / "1-living", tmp_path / "2-dead", tmp_path / ".3-unnamed"
    for path in (dead, unnamed):
        path.touch()
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holders.names(tmp_path) == ("1-living",)
        assert sorted(tmp_path.iterdir()) == [unnamed, living]
    assert holders.names(tmp_path) == ()


def test_where_there_is_no_folder_nobody_holds(tmp_path: Path) -> None:
    assert holders.names(tmp_path / "none") == ()
