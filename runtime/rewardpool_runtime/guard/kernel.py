"""Requests of a process to the kernel: a ruleset of Landlock, a filter of system calls, settings of its own.

https://docs.kernel.org/userspace-api/landlock.html, https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import os
import struct
from types import TracebackType
from typing import Final, Self

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION: Final = 1
_PATH_BENEATH: Final = 1
SET_PDEATHSIG, SET_DUMPABLE, SET_SECCOMP, SET_NO_NEW_PRIVS = 1, 4, 22, 38
_FILTER: Final = 2
_CAPABILITIES_VERSION: Final = 0x20080522
_CAPABILITIES: Final = struct.Struct("=6I")
"""Effective, permitted, inherited: of the first 32, then of the others."""

WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
EXECUTE, REFER, TRUNCATE, IOCTL_DEVICE = 1 << 0, 1 << 13, 1 << 14, 1 << 15
_OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE  # others are a folder's
_FILE_RIGHTS: Final = {3: 15, 5: 16}
"""By Landlock's version: how many rights on files it knows."""
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2
TCP: Final = 0b11

LEAST_LANDLOCK: Final = 3  # older ones let files be truncated

_libc = ctypes.CDLL(None, use_errno=True)


class GuardError(OSError):
    """The kernel refused a part of the guard; the message names it."""


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 where it has none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)))


def has_landlock() -> bool:
    """Return whether the kernel's Landlock is recent enough to stand for anything here."""
    return landlock_version() >= LEAST_LANDLOCK


def file_rights() -> int:
    """Return all rights on files that the kernel's Landlock knows; raises GuardError where that is too old."""
    version = landlock_version()
    if version < LEAST_LANDLOCK:
        raise GuardError(f"Landlock of this kernel is version {version}, and {LEAST_LANDLOCK} is needed")
    return (1 << max(count for least, count in _FILE_RIGHTS.items() if least <= version)) - 1


class Ruleset:
    """Rules of Landlock's: what is handled is refused, but where a rule allows it."""

    def __init__(self, *, files: int, tcp: int = 0, scopes: int = 0) -> None:
        """Make one; raises GuardError. What the kernel's version does not know is left out.

        Args:
            tcp: The same of TCP.
            scopes: What is kept to processes under the same rules.
        """
        version = landlock_version()
        attributes = struct.pack("=QQQ", files, tcp if version >= 4 else 0, scopes if version >= 6 else 0)
        attributes = attributes[: 8 if version < 4 else 16 if version < 6 else 24]
        self._descriptor = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
        if self._descriptor < 0:
            raise refused("a ruleset of Landlock")

    def allow(self, path: str, rights: int) -> None:
        """Allow rights beneath a folder, or on a file; raises GuardError, and OSError where it cannot be opened."""
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = struct.pack("=Qi", rights if os.path.isdir(path) else rights & _OF_FILES, place)
            if _libc.syscall(_ADD_RULE, self._descriptor, _PATH_BENEATH, rule, 0):
                raise refused(f"Landlock's rule for {path}")
        finally:
            os.close(place)

    def restrict_self(self) -> None:
        """Put this process, which has one thread, under the rules, for good; raises GuardError."""
        set_option("no new privileges", SET_NO_NEW_PRIVS, 1)
        if _libc.syscall(_RESTRICT_SELF, self._descriptor, 0):
            raise refused("Landlock")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def filter_calls(code: bytes) -> None:
    """Put this process, which has one thread, under a filter of `syscalls`, for good; raises GuardError."""
    set_option("no new privileges", SET_NO_NEW_PRIVS, 1)
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(held))
    set_option("a filter of system calls", SET_SECCOMP, _FILTER, program)


def keep_capabilities(kept: int = 0) -> None:
    """Give up all capabilities but these, as bits; whoever has none keeps none. Raises GuardError."""
    set_option("no new privileges", SET_NO_NEW_PRIVS, 1)  # without it root has all of them again in what it executes
    header = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    held = ctypes.create_string_buffer(_CAPABILITIES.size)
    if _libc.capget(header, held):
        raise refused("a list of capabilities")
    left = [word & (kept if index < 3 else 0) for index, word in enumerate(_CAPABILITIES.unpack(held.raw))]
    if _libc.capset(header, _CAPABILITIES.pack(*left)):
        raise refused("an end of capabilities")


def set_option(part: str, option: int, *values: int | bytes) -> None:
    """Set an option of this process by `prctl`; raises GuardError, which names the part."""
    arguments = [value if isinstance(value, bytes) else ctypes.c_ulong(value) for value in values]
    if _libc.prctl(option, *arguments, *[ctypes.c_ulong(0)] * (4 - len(arguments))):
        raise refused(part)


def refused(part: str) -> GuardError:
    """Return the error of a part that the kernel refused just now."""
    number = ctypes.get_errno()
    return GuardError(number, f"{part} was refused: {os.strerror(number)}")
