"""Rights that a process gives up before it runs code that a policy wrote: files, network, other processes, resources.

Landlock and seccomp together; neither alone shuts everything: without Landlock, files and /proc stay open; without
seccomp, UDP, Unix sockets and other processes' limits. Where there is no Landlock, a file system of its own does.
"""

import contextlib
import os
import platform
import resource
import signal
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from rewardpool_runtime.guard import kernel, syscalls, view
from rewardpool_runtime.guard.kernel import GuardError

SHARED_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
DATA: Final = ("/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom", "/dev/random", "/dev/zero")
WRITABLE: Final = ("/dev/null",)

OPEN_FILES: Final = 64


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one process.

    Attributes:
        cpu_seconds: Of all its threads. A net: the supervisor ends it at the exact number.
        memory_bytes: Address space beyond what its parent had.
    """

    cpu_seconds: float
    memory_bytes: int

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "Limits":
        return cls(cpu_seconds=float(value["cpu_seconds"]), memory_bytes=int(value["memory_bytes"]))


def missing() -> str | None:
    """Return what this machine lacks for the guard, in words; None where it has all."""
    if sys.platform != "linux":
        return f"Linux (this is {sys.platform})"
    if (machine := platform.machine()) not in syscalls.MACHINES:
        return f"a filter of system calls for {machine} (there is one for {' and '.join(syscalls.MACHINES)})"
    if not kernel.has_landlock() and not view.is_possible():
        return (
            f"Landlock in this kernel, version {kernel.LEAST_LANDLOCK} (Linux 6.2 or newer, with landlock among its"
            " LSMs), and the right to make user and mount namespaces, which would do in its place"
        )
    return None


@cache
def readable_folders() -> list[str]:
    """Return the folders and files of Python, of installed packages and of shared libraries."""
    # No project's folder, which may hold answers.
    paths = sysconfig.get_paths()
    python = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    candidates = dict.fromkeys([*python, *(os.path.join(sys.base_prefix, "lib"), *SHARED_LIBRARIES, *DATA)])
    return [path for path in candidates if os.path.exists(path)]


def restrict(limits: Limits, *, parent: int, also_readable: Iterable[str] = ()) -> None:
    """Give up everything that the sandbox does not need, for good. Only in a process of one thread.

    Args:
        parent: Id of its parent, with which it ends.
        also_readable: Folders.

    Raises:
        GuardError: The kernel refused a part; nothing may be run then.
        SystemExit: The parent has ended.
    """
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    readable = [*readable_folders(), *also_readable]
    has_landlock = kernel.has_landlock()
    if not has_landlock:
        here = os.getcwd()
        view.show_only(readable, WRITABLE)
        with contextlib.suppress(OSError):  # it is not in there, and the root is as good
            os.chdir(here)
    # After the namespaces, whose making takes back the signal and the end of dumps.
    kernel.set_option("the signal at its parent's end", kernel.SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that, and no signal comes
        raise SystemExit("the parent process has ended")
    kernel.set_option("no dumps", kernel.SET_DUMPABLE, 0)
    _limit(limits, mapped)
    if has_landlock:
        _restrict_files(readable)
    kernel.keep_capabilities()
    kernel.filter_calls(syscalls.filter_for(os.getpid(), platform.machine()))


def _limit(limits: Limits, mapped: int) -> None:
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


def _restrict_files(readable: Iterable[str]) -> None:
    allowed = dict.fromkeys(readable, kernel.READ_FILE | kernel.READ_DIR)
    allowed |= dict.fromkeys(WRITABLE, kernel.READ_FILE | kernel.WRITE_FILE)
    scopes = kernel.SCOPE_ABSTRACT_SOCKETS | kernel.SCOPE_SIGNALS
    with kernel.Ruleset(files=kernel.file_rights(), tcp=kernel.TCP, scopes=scopes) as rules:
        for path, rights in allowed.items():
            rules.allow(path, rights)
        rules.restrict_self()
