"""Folders that are this user's own."""

import os
from pathlib import Path

import pytest
from support.neighbour import NOBODY, needs_two_users

from rewardpool_runtime.own_paths import PathNotOwnError, check_own


def test_a_users_own_folder_is_taken_whether_or_not_it_is_there(tmp_path: Path) -> None:
    check_own(tmp_path / "not" / "there")
    (tmp_path / "link").symlink_to(tmp_path)
    check_own(tmp_path / "link" / "below")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o707])
def test_one_that_others_may_write_is_refused_by_its_path(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PathNotOwnError, match=f"{folder} may be written by all users"):
        check_own(folder)


def test_one_below_a_folder_like_tmp_is_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    check_own(tmp_path / "own")
    tmp_path.chmod(0o777)
    with pytest.raises(PathNotOwnError, match=str(tmp_path)):
        check_own(tmp_path / "own")


@needs_two_users
def test_one_that_another_user_made_and_what_it_leads_to_are_refused(tmp_path: Path) -> None:
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    link.symlink_to(theirs)
    for path in (theirs, theirs / "below", link):
        with pytest.raises(PathNotOwnError, match=f"{theirs} belongs to user {NOBODY}"):
            check_own(path)
    os.lchown(link, NOBODY, NOBODY)
    theirs.rmdir()
    link.unlink()
    (tmp_path / "own").mkdir()
    link.symlink_to(tmp_path / "own")
    os.lchown(link, NOBODY, NOBODY)
    with pytest.raises(PathNotOwnError, match=f"{link} belongs to user {NOBODY}"):
        check_own(link)


@needs_two_users
def test_a_folder_of_a_group_that_others_are_in_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chown(folder, 0, NOBODY)
    folder.chmod(0o770)
    with pytest.raises(PathNotOwnError, match=f"{folder} may be written by group {NOBODY}"):
        check_own(folder)
