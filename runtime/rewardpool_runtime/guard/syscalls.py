"""System calls that a program in the sandbox may make, as a seccomp filter. Linux on x86-64 and on 64-bit ARM.

An allowlist: a call that a newer kernel adds is refused. What it leaves out are calls by which a program reaches
another process, a network or a file it may not write: all that make processes and threads, sockets, `memfd_create`,
`ptrace`, `process_vm_readv`, `sched_setaffinity`, mounts, names of files. Numbers are those of the kernel's
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, the filter's format that of
linux/bpf_common.h and linux/seccomp.h.
"""

import errno
import fcntl
import signal
import struct
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Linux on one kind of processor.

    Attributes:
        audit: Its AUDIT_ARCH of linux/audit.h.
        allowed: Calls that may be made whatever their arguments: they concern the process itself, or files that it has
            open. By name; a kind of processor has no number for calls that are older than it.
        special: The same of calls whose arguments decide, or which the C library has to believe missing.
    """

    audit: int
    allowed: Mapping[str, int]
    special: Mapping[str, int]


_X86_64: Final = {
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
_AARCH64: Final = {
    "getcwd": 17, "eventfd2": 19, "epoll_create1": 20, "epoll_ctl": 21, "epoll_pwait": 22, "dup": 23, "dup3": 24,
    "faccessat": 48, "close": 57, "pipe2": 59, "getdents64": 61, "lseek": 62, "read": 63, "write": 64, "readv": 65,
    "writev": 66, "pread64": 67, "pwrite64": 68, "preadv": 69, "pwritev": 70, "pselect6": 72, "ppoll": 73,
    "readlinkat": 78, "newfstatat": 79, "fstat": 80, "exit": 93, "exit_group": 94, "futex": 98, "set_robust_list": 99,
    "nanosleep": 101, "getitimer": 102, "setitimer": 103, "clock_gettime": 113, "clock_getres": 114,
    "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132,
    "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153, "uname": 160, "getrlimit": 163,
    "getrusage": 165, "gettimeofday": 169, "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176,
    "getegid": 177, "gettid": 178, "sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222,
    "mprotect": 226, "madvise": 233, "getrandom": 278, "membarrier": 283, "statx": 291, "rseq": 293, "faccessat2": 439,
}  # fmt: skip
MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(
        audit=0xC000003E,
        allowed=_X86_64,
        special={
            "open": 2,
            "ioctl": 16,
            "kill": 62,
            "fcntl": 72,
            "tgkill": 234,
            "openat": 257,
            "prlimit64": 302,
            "clone3": 435,
        },
    ),
    "aarch64": Machine(
        audit=0xC00000B7,
        allowed=_AARCH64,
        special={
            "fcntl": 25,
            "ioctl": 29,
            "openat": 56,
            "kill": 129,
            "tgkill": 131,
            "prlimit64": 261,
            "clone3": 435,
        },
    ),
}

_SOCKET: Final = {"x86_64": 41, "aarch64": 198}
_IO_URING_SETUP: Final = 425  # its queues make sockets without a system call

TERMINAL_QUESTIONS: Final = (termios.TCGETS, termios.TIOCGWINSZ, termios.FIOCLEX, termios.FIONREAD)
# Not F_SETOWN and F_SETSIG, by which the kernel sends signals to others.
DESCRIPTOR_COMMANDS: Final = (
    fcntl.F_DUPFD, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL, fcntl.F_DUPFD_CLOEXEC,
)  # fmt: skip

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32_BIT = 0x40000000  # marks the calls of a further table that x86-64 has
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
    return _INSTRUCTION.pack(_EQUAL, 0, len(block) // _INSTRUCTION.size, number) + block


_REFUSE = _returns(_ERRNO | errno.EPERM)


def _open(flags: int) -> bytes:
    """Allow to open a file by an access mode; the flags are in that argument.

    TRAP: mode 3, neither reading nor writing, needs no right of Landlock's and runs a driver's own `open`.
    """
    return _argument(flags) + _INSTRUCTION.pack(_AND, 0, 0, 3) + _on(3, _REFUSE) + _returns(_ALLOW)


def filter_for(pid: int, machine: str) -> bytes:
    """Return the filter for the process of this id, which may send signals to itself alone.

    TRAP: not SIGKILL either, which its supervisor takes for the kernel's end of a process where memory is short.

    Raises:
        KeyError: There is none for such a machine.
    """
    calls = MACHINES[machine]
    # Reads limits of its own: neither of another process, nor with new ones.
    own_limits = (_argument(0) + _unless_equal_refuse(0) + _argument(2) + _unless_equal_refuse(0) + _upper_half(2)) + (
        _unless_equal_refuse(0) + _returns(_ALLOW)
    )
    blocks = {
        # The C library then makes a thread by the older call, which is refused as any other.
        "clone3": _returns(_ERRNO | errno.ENOSYS),
        "open": _open(1),
        "openat": _open(2),
        "ioctl": _argument(1) + _allow_if_one_of(TERMINAL_QUESTIONS) + _REFUSE,
        "fcntl": _argument(1) + _allow_if_one_of(DESCRIPTOR_COMMANDS) + _REFUSE,
        "kill": _own_signal(pid, argument=1),
        "tgkill": _own_signal(pid, argument=2),
        "prlimit64": own_limits,
    }
    begin = _begin(calls) + _allow_if_one_of(list(calls.allowed.values()))
    return begin + b"".join(_on(number, blocks[name]) for name, number in calls.special.items()) + _REFUSE


def filter_without_network(machine: str) -> bytes:
    """Return the filter for a process that may do all but make sockets; pairs of them, which reach nothing, it may.

    Raises:
        KeyError: There is none for such a machine.
    """
    return filter_refusing((_SOCKET[machine], _IO_URING_SETUP), machine)


def filter_refusing(numbers: Sequence[int], machine: str) -> bytes:
    """Return the filter for a process that may make all calls but those of these numbers."""
    refusals = b"".join(_on(number, _REFUSE) for number in numbers)
    return _begin(MACHINES[machine]) + refusals + _returns(_ALLOW)


def _begin(calls: Machine) -> bytes:
    """Load the call's number, after an end of whoever makes calls of another kind of processor."""
    return (
        _INSTRUCTION.pack(_LOAD, 0, 0, _ARCHITECTURE)
        + _INSTRUCTION.pack(_EQUAL, 1, 0, calls.audit)
        + _returns(_KILL_PROCESS)
        + _INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER)
        + _INSTRUCTION.pack(_AT_LEAST, 0, 1, _X32_BIT)
        + _returns(_KILL_PROCESS)
    )


def _own_signal(pid: int, *, argument: int) -> bytes:
    not_killed = _argument(argument) + _on(signal.SIGKILL, _REFUSE) + _returns(_ALLOW)
    return _argument(0) + _unless_equal_refuse(pid) + not_killed
