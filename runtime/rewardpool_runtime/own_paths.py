"""Check that a folder is this user's own: no other user made it, nor may put another one in its place.

What is kept in it says whom a trainer asks for scores, with which key, and what a supervisor runs.
"""

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

from rewardpool_api import names

_WRITABLE_BY_GROUP: Final = 0o020
_WRITABLE_BY_ALL: Final = 0o002


class PathNotOwnError(PermissionError):
    """Another user made a folder, or may write it; the text has its path."""


def check_own(path: Path) -> None:
    """See that a folder, and each one above it, is this user's or root's, and that nobody else may write it.

    Raises:
        PathNotOwnError: One is not.
        OSError: One cannot be looked at.
    """
    path = Path(os.path.abspath(path))
    for one in (path, *path.parents):
        try:
            found = one.lstat()
        except FileNotFoundError:
            # This user makes it.
            continue
        if stat.S_ISLNK(found.st_mode):
            check_own(one.resolve())
        # One like /tmp, in which all may write and everybody renames only what is theirs, may be above.
        if why := _why_not(found, is_last=one == path):
            raise PathNotOwnError(
                f"{one} {why}, who could read the pool's keys and give its scores: set ${names.ENV_STATE_DIR} to a"
                " folder that only you can write, or remove this one"
            )


def _why_not(found: os.stat_result, *, is_last: bool) -> str:
    if found.st_uid not in _trusted():
        return f"belongs to user {found.st_uid}"
    if stat.S_ISLNK(found.st_mode) or (found.st_mode & stat.S_ISVTX and not is_last):
        return ""
    if found.st_mode & _WRITABLE_BY_ALL:
        return "may be written by all users"
    if found.st_mode & _WRITABLE_BY_GROUP and not _is_private(found.st_gid):
        return f"may be written by group {found.st_gid}"
    return ""


def _trusted() -> frozenset[int]:
    """Return this user, root, and where this process has users of its own, whoever is none of them: root outside."""
    users = {0, os.getuid()}
    if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
        users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return frozenset(users)


def _is_private(group: int) -> bool:
    """Return whether a group has this user alone, as where each user has a group of the same name."""
    try:
        found, user = grp.getgrgid(group), pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False
    return group == 0 or (found.gr_name == user and set(found.gr_mem) <= {user})
