"""What a process gives up before it runs code that a policy wrote: files, network, other processes, resources.

Landlock (files, TCP, abstract sockets, signals) and seccomp (all other calls) together; neither alone shuts everything:
without Landlock, files and /proc stay open; without seccomp, UDP, Unix sockets and other processes' limits.
https://docs.kernel.org/userspace-api/landlock.html, https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from rewardpool.sandbox import syscalls

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_SET_DUMPABLE, _SET_NO_NEW_PRIVS, _SET_SECCOMP, _SET_PDEATHSIG = 4, 38, 22, 1
_FILTER: Final = 2

_READ_FILE, _READ_DIR, _WRITE_FILE = 1 << 2, 1 << 3, 1 << 1
_FILE_RIGHTS: Final = {3: 15, 5: 16}
"""By Landlock's version: how many rights on files it knows."""

SHARED_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
DATA: Final = ("/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom", "/dev/random", "/dev/zero")
WRITABLE: Final = ("/dev/null",)

OPEN_FILES: Final = 64
LEAST_LANDLOCK: Final = 3
"""Older ones let files be truncated."""
_CAPABILITIES_VERSION: Final = 0x20080522


class GuardError(OSError):
    """The kernel refused a part of the guard; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one process.

    Attributes:
        cpu_seconds: Of all its threads. A net: the supervisor ends it at the exact number.
        memory_bytes: Address space beyond what its parent had.
    """

    cpu_seconds: float
    memory_bytes: int

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "Limits":
        """Return limits from a frame of the supervisor's."""
        return cls(cpu_seconds=float(value["cpu_seconds"]), memory_bytes=int(value["memory_bytes"]))


_libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str | None:
    """Return what this machine lacks for the guard, in words; None where it has all."""
    if sys.platform != "linux":
        return f"Linux (this is {sys.platform})"
    if (machine := platform.machine()) not in syscalls.MACHINES:
        return f"a filter of system calls for {machine} (there is one for {' and '.join(syscalls.MACHINES)})"
    if landlock_version() < LEAST_LANDLOCK:
        return f"Landlock in this kernel, version {LEAST_LANDLOCK} (Linux 6.2 or newer, with landlock among its LSMs)"
    return None


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 where it has none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)))


@cache
def readable_folders() -> list[str]:
    """Return the folders and files of Python, of installed packages and of shared libraries.

    No project's folder, which may hold answers; so a checker's package should not bring its answers.
    """
    paths = sysconfig.get_paths()
    python = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    candidates = dict.fromkeys([*python, *(os.path.join(sys.base_prefix, "lib"), *SHARED_LIBRARIES, *DATA)])
    return [path for path in candidates if os.path.exists(path)]


def restrict(limits: Limits, *, parent: int, also_readable: Iterable[str] = ()) -> None:
    """Give up everything that the sandbox does not need, for good. Only in a process of one thread.

    Args:
        limits: Of the process.
        parent: Id of its parent, with which it ends.
        also_readable: Folders.

    Raises:
        GuardError: The kernel refused a part; nothing may be run then.
        SystemExit: The parent has ended.
    """
    _prctl("the signal at its parent's end", _SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that, and no signal comes
        raise SystemExit("the parent process has ended")
    _prctl("no dumps", _SET_DUMPABLE, 0)
    _limit(limits)
    _prctl("no new privileges", _SET_NO_NEW_PRIVS, 1)
    _restrict_files(also_readable)
    _drop_capabilities()
    _restrict_calls()


def _limit(limits: Limits) -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    seconds = int(limits.cpu_seconds * 1.25) + 1
    own = resource.getrlimit(resource.RLIMIT_AS)[1]
    if own != resource.RLIM_INFINITY and own < mapped + limits.memory_bytes:
        # With less than it is promised, the code would be blamed for what it may do.
        raise GuardError(
            f"{limits.memory_bytes >> 20} MiB of memory are more than the limit of this process leaves,"
            f" {max(0, own - mapped) >> 20} MiB: raise that (memory_mib of a function, `ulimit -v`)"
        )
    for kind, soft, hard in (
        (resource.RLIMIT_AS, mapped + limits.memory_bytes, mapped + limits.memory_bytes),
        (resource.RLIMIT_CPU, seconds, seconds + 5),  # the first sends SIGXCPU, the second SIGKILL
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES),
    ):
        most = resource.getrlimit(kind)[1]
        values = (soft, hard) if most == resource.RLIM_INFINITY else (min(soft, most), min(hard, most))
        resource.setrlimit(kind, values)


def _restrict_files(also_readable: Iterable[str]) -> None:
    version = landlock_version()
    rights = (1 << max(count for least, count in _FILE_RIGHTS.items() if least <= version)) - 1
    tcp = 0b11 if version >= 4 else 0
    scopes = 0b11 if version >= 6 else 0
    attributes = struct.pack("=QQQ", rights, tcp, scopes)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise _refused("a ruleset of Landlock")
    allowed = dict.fromkeys([*readable_folders(), *also_readable], _READ_FILE | _READ_DIR)
    allowed |= dict.fromkeys(WRITABLE, _READ_FILE | _WRITE_FILE)
    for path, access in allowed.items():
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", access if os.path.isdir(path) else access & ~_READ_DIR, place)
        if _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
            raise _refused(f"Landlock's rule for {path}")
        os.close(place)
    if _libc.syscall(_RESTRICT_SELF, ruleset, 0):
        raise _refused("Landlock")
    os.close(ruleset)


def _drop_capabilities() -> None:
    if _libc.capset(struct.pack("=Ii", _CAPABILITIES_VERSION, 0), bytes(24)):
        raise _refused("an end of capabilities")


def _restrict_calls() -> None:
    code = syscalls.filter_for(os.getpid(), platform.machine())
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(held))
    _prctl("a filter of system calls", _SET_SECCOMP, _FILTER, program)


def _prctl(part: str, option: int, *values: int | bytes) -> None:
    arguments = [value if isinstance(value, bytes) else ctypes.c_ulong(value) for value in values]
    if _libc.prctl(option, *arguments, *[ctypes.c_ulong(0)] * (4 - len(arguments))):
        raise _refused(part)


def _refused(part: str) -> GuardError:
    number = ctypes.get_errno()
    return GuardError(number, f"{part} was refused: {os.strerror(number)}")
