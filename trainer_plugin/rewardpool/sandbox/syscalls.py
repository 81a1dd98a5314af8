"""System calls that a program in the sandbox may make, as a seccomp filter. Linux on x86-64 alone.

An allowlist: a call that a newer kernel adds is refused. What it leaves out are calls by which a program reaches
another process, a network or a file it may not write: all that make processes and threads, sockets, `memfd_create`,
`ptrace`, `process_vm_readv`, `sched_setaffinity`, mounts, names of files. Numbers are those of the kernel's
arch/x86/entry/syscalls/syscall_64.tbl, the filter's format that of linux/bpf_common.h and linux/seccomp.h.
"""

import errno
import fcntl
import signal
import struct
import termios
from collections.abc import Sequence
from typing import Final

MACHINE: Final = "x86_64"

ALLOWED: Final = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8,
    "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
    "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "access": 21, "select": 23, "sched_yield": 24,
    "mremap": 25, "madvise": 28, "dup": 32, "dup2": 33, "pause": 34, "nanosleep": 35, "getitimer": 36, "alarm": 37,
    "setitimer": 38, "getpid": 39, "exit": 60, "uname": 63, "getcwd": 79, "readlink": 89, "gettimeofday": 96,
    "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107,
    "getegid": 108, "getppid": 110, "getpgrp": 111, "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202,
    "sched_getaffinity": 204, "getdents64": 217, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
    "clock_nanosleep": 230, "exit_group": 231, "epoll_wait": 232, "epoll_ctl": 233, "newfstatat": 262,
    "readlinkat": 267, "faccessat": 269, "pselect6": 270, "ppoll": 271, "set_robust_list": 273, "epoll_pwait": 281,
    "eventfd2": 290, "epoll_create1": 291, "dup3": 292, "pipe2": 293, "preadv": 295, "pwritev": 296, "getrandom": 318,
    "membarrier": 324, "statx": 332, "rseq": 334, "faccessat2": 439,
}  # fmt: skip
"""Whatever their arguments: they concern the process itself, or files that it has open."""

OPEN, IOCTL, KILL, FCNTL, TGKILL, OPENAT, PRLIMIT64, CLONE3 = 2, 16, 62, 72, 234, 257, 302, 435
TERMINAL_QUESTIONS: Final = (termios.TCGETS, termios.TIOCGWINSZ, termios.FIOCLEX, termios.FIONREAD)
DESCRIPTOR_COMMANDS: Final = (
    fcntl.F_DUPFD, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL, fcntl.F_DUPFD_CLOEXEC,
)  # fmt: skip
"""Not F_SETOWN and F_SETSIG, by which the kernel sends signals to others."""

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X86_64, _X32_BIT = 0xC000003E, 0x40000000
_INSTRUCTION = struct.Struct("=HBBI")


def _returns(action: int) -> bytes:
    return _INSTRUCTION.pack(_RETURN, 0, 0, action)


def _argument(index: int) -> bytes:
    """Load an argument's low 32 bits."""
    return _INSTRUCTION.pack(_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _upper_half(index: int) -> bytes:
    return _INSTRUCTION.pack(_LOAD, 0, 0, _ARGUMENTS + 8 * index + 4)


def _allow_if_one_of(values: Sequence[int]) -> bytes:
    return b"".join(_INSTRUCTION.pack(_EQUAL, 0, 1, value) + _returns(_ALLOW) for value in values)


def _unless_equal_refuse(value: int) -> bytes:
    return _INSTRUCTION.pack(_EQUAL, 1, 0, value) + _returns(_ERRNO | errno.EPERM)


def _on(number: int, block: bytes) -> bytes:
    """Do a block, which returns, for one call alone."""
    return _INSTRUCTION.pack(_EQUAL, 0, len(block) // _INSTRUCTION.size, number) + block


_REFUSE = _returns(_ERRNO | errno.EPERM)


def _open(flags: int) -> bytes:
    """Allow to open a file by an access mode; the flags are in that argument.

    TRAP: mode 3, neither reading nor writing, needs no right of Landlock's and runs a driver's own `open`.
    """
    return _argument(flags) + _INSTRUCTION.pack(_AND, 0, 0, 3) + _on(3, _REFUSE) + _returns(_ALLOW)


_BEGIN = (
    _INSTRUCTION.pack(_LOAD, 0, 0, _ARCHITECTURE)
    + _INSTRUCTION.pack(_EQUAL, 1, 0, _X86_64)
    + _returns(_KILL_PROCESS)
    + _INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER)
    + _INSTRUCTION.pack(_AT_LEAST, 0, 1, _X32_BIT)
    + _returns(_KILL_PROCESS)
    + _allow_if_one_of(list(ALLOWED.values()))
    # The C library then makes a thread by the older call, which is refused as any other.
    + _on(CLONE3, _returns(_ERRNO | errno.ENOSYS))
    + _on(OPEN, _open(1))
    + _on(OPENAT, _open(2))
    + _on(IOCTL, _argument(1) + _allow_if_one_of(TERMINAL_QUESTIONS) + _REFUSE)
    + _on(FCNTL, _argument(1) + _allow_if_one_of(DESCRIPTOR_COMMANDS) + _REFUSE)
)


def filter_for(pid: int) -> bytes:
    """Return the filter for the process of this id, which may send signals to itself alone.

    TRAP: not SIGKILL either, which its supervisor takes for the kernel's end of a process where memory is short.
    """
    # Reads limits of its own: neither of another process, nor with new ones.
    own_limits = (_argument(0) + _unless_equal_refuse(0) + _argument(2) + _unless_equal_refuse(0) + _upper_half(2)) + (
        _unless_equal_refuse(0) + _returns(_ALLOW)
    )
    return (
        _BEGIN
        + _on(KILL, _own_signal(pid, argument=1))
        + _on(TGKILL, _own_signal(pid, argument=2))
        + _on(PRLIMIT64, own_limits)
        + _REFUSE
    )


def _own_signal(pid: int, *, argument: int) -> bytes:
    """Allow a signal to the process itself, whose number is in that argument."""
    not_killed = _argument(argument) + _on(signal.SIGKILL, _REFUSE) + _returns(_ALLOW)
    return _argument(0) + _unless_equal_refuse(pid) + not_killed
