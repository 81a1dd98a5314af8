"""A file system of its own for a process, where the kernel has no Landlock, as gVisor has none.

By a user and a mount namespace, which need no right where users may make them: user_namespaces(7),
mount_namespaces(7). A process in a user namespace of its own also reads and traces no process outside it.
"""

import ctypes
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import cache

from rewardpool_runtime.guard.kernel import GuardError, refused

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC, _REMOUNT, _NO_ATIME, _NO_DIR_ATIME, _BIND, _WITH_SUBMOUNTS, _PRIVATE = (
    1, 2, 4, 8, 32, 1024, 2048, 4096, 16384, 1 << 18,
)  # fmt: skip
_RELATIVE_ATIME = 1 << 21
_KEPT = {
    os.ST_NOSUID: _NO_SUID, os.ST_NODEV: _NO_DEVICES, os.ST_NOEXEC: _NO_EXEC, os.ST_NOATIME: _NO_ATIME,
    os.ST_NODIRATIME: _NO_DIR_ATIME, os.ST_RELATIME: _RELATIVE_ATIME,
}  # fmt: skip
"""Flags that a mount from outside the user namespace has for good, by what `statvfs` calls them."""
_DETACH = 2
_PLACES = ("/mnt", "/media", "/srv", "/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - covered, in this process alone
_MAX_LINKS = 40

_libc = ctypes.CDLL(None, use_errno=True)


@cache
def is_possible() -> bool:
    """Return whether a process of this user may have such namespaces, as a child finds that tries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child of several threads calls the kernel alone
        pid = os.fork()
    if pid == 0:
        try:
            _enter_namespaces(_NEW_USER | _NEW_MOUNTS)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def show_only(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Let this process, which has one thread, find these folders and files at their paths, and nothing beside them.

    Gives it all capabilities in a user namespace of its own, which are to be given up then.

    Raises:
        GuardError: The kernel refuses a part.
    """
    shown = (False, [*readable]), (True, [*writable])
    _enter_namespaces(_NEW_USER | _NEW_MOUNTS)
    root = _covered_place(beside=[path for _, paths in shown for path in paths])
    for is_writable, paths in shown:
        for path in _outermost([_with_links(path, root) for path in paths]):
            _bind(path, root + path, is_writable=is_writable)
    os.chmod(root, 0o111)  # noqa: S103 - even its owner lists it no more
    _mount(None, root, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES, "the end of writing to its root")
    os.chroot(root)
    os.chdir("/")


def hide(folder: str, shown: Iterable[str]) -> None:
    """Let this process, which has one thread, find nothing in a folder but these paths.

    Raises:
        GuardError: The kernel refuses a part.
    """
    _enter_namespaces(_NEW_USER | _NEW_MOUNTS)
    covered = _covered_place(beside=[folder])
    kept = [(path, f"{covered}/{number}") for number, path in enumerate(_outermost(shown))]
    for path, place in kept:
        _bind(path, place, is_writable=True)
    _cover(folder)
    for path, place in kept:
        _bind(place, path, is_writable=True)
    _mount(None, folder, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES, f"the end of writing to {folder}")
    if _libc.umount2(covered.encode(), _DETACH):
        raise refused(f"an end of the mount at {covered}")


def part() -> None:
    """Part this process from others of its user, which it can then neither read nor trace.

    Raises:
        GuardError: The kernel refuses a user namespace.
    """
    _enter_namespaces(_NEW_USER)


def _enter_namespaces(kinds: int) -> None:
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(kinds):
        raise refused("a namespace of its own")
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        raise GuardError(error.errno, f"a map of its user was refused: {error.strerror}") from error
    if kinds & _NEW_MOUNTS:
        _mount("none", "/", _PRIVATE | _WITH_SUBMOUNTS, "mounts of its own")


def _covered_place(*, beside: Iterable[str]) -> str:
    """Return a folder with an empty file system, which neither is nor has any of these in it, or what they lead to."""
    needed = [f"{one}/" for path in beside for one in (path, os.path.realpath(path))]
    for place in _PLACES:
        is_needed = any(path.startswith(f"{place}/") for path in needed)
        if os.path.isdir(place) and not os.path.islink(place) and not is_needed:
            _cover(place)
            return place
    raise GuardError(f"none of {', '.join(_PLACES)} is there to mount on, and without what is to be found")


def _cover(folder: str) -> None:
    if _libc.mount(b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(_NO_SUID | _NO_DEVICES), b"mode=755,size=1m"):
        raise refused(f"an empty file system at {folder}")


def _with_links(path: str, root: str) -> str:
    done, left = "/", [part for part in path.split("/") if part]
    for _ in range(_MAX_LINKS):
        while left:
            step = os.path.join(done, left.pop(0))
            if os.path.islink(step):
                break
            done = os.path.normpath(step)
        else:
            return done
        target = os.readlink(step)
        if not os.path.lexists(root + step):
            os.makedirs(os.path.dirname(root + step), exist_ok=True)
            os.symlink(target, root + step)
        done, left = "/" if target.startswith("/") else done, [*filter(None, target.split("/")), *left]
    raise GuardError(f"{path} has more than {_MAX_LINKS} links")


def _bind(source: str, place: str, *, is_writable: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    elif not os.path.lexists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    _mount(source, place, _BIND | _WITH_SUBMOUNTS, f"{source} in its file system")
    if not is_writable:
        for mount in [place, *_submounts(place)]:
            has = os.statvfs(mount).f_flag
            kept = sum(flag for found, flag in _KEPT.items() if has & found)
            _mount(None, mount, _REMOUNT | _BIND | _READ_ONLY | kept, f"the end of writing to {source}")


def _submounts(place: str) -> Iterator[str]:
    """Yield what is mounted beneath a folder: a bind mount's flags are its own mount's alone."""
    with open("/proc/self/mountinfo") as lines:
        for line in lines:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4])  # \\040 is a space
            if point.startswith(f"{place}/"):
                yield point


def _outermost(paths: Iterable[str]) -> list[str]:
    outermost: list[str] = []
    for path in sorted(set(paths)):
        if not outermost or not path.startswith(f"{outermost[-1]}/"):
            outermost.append(path)
    return outermost


def _mount(source: str | None, target: str, flags: int, part_of_guard: str) -> None:
    at = source.encode() if source is not None else None
    if _libc.mount(at, target.encode(), None, ctypes.c_ulong(flags), None):
        raise refused(part_of_guard)
