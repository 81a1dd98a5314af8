"""The filters of system calls, of machines that are not this one too: interpreted as the kernel does."""

import errno
import fcntl
import re
import struct
from pathlib import Path

import pytest

from rewardpool_runtime.guard.syscalls import MACHINES, filter_for, filter_without_network

PID = 4711
ALLOWED, KILLED = 0x7FFF0000, 0x80000000
REFUSED, MISSING = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
NEWER = {
    "open": "openat",
    "stat": "newfstatat",
    "lstat": "newfstatat",
    "access": "faccessat",
    "readlink": "readlinkat",
    "poll": "ppoll",
    "select": "pselect6",
    "pause": "ppoll",
    "alarm": "setitimer",
    "dup2": "dup3",
    "epoll_wait": "epoll_pwait",
    "time": "clock_gettime",
    "getpgrp": None,
}
"""By calls that 64-bit ARM never had, what its C library calls instead."""
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def decided(program: bytes, *, audit: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Return what a filter answers to a call: a classic BPF program over `struct seccomp_data`."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions = list(struct.iter_unpack("=HBBI", program))
    position = held = 0
    while True:
        code, if_true, if_false, value = instructions[position]
        position += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            held &= value
        elif code in (0x15, 0x35):
            position += if_true if (held == value if code == 0x15 else held >= value) else if_false
        else:
            assert code == 0x06
            return int(value)


@pytest.mark.parametrize("name", MACHINES)
def test_a_call_that_is_not_listed_is_refused(name: str) -> None:
    machine, program = MACHINES[name], filter_for(PID, name)
    for number in range(600):
        if number not in machine.special.values():
            wanted = ALLOWED if number in machine.allowed.values() else REFUSED
            assert decided(program, audit=machine.audit, number=number) == wanted, number


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(
    ("call", "arguments", "wanted"),
    [
        ("openat", (0, 0, 0o100), ALLOWED),
        ("openat", (0, 0, 3), REFUSED),
        ("clone3", (), MISSING),
        ("kill", (PID, 11), ALLOWED),
        ("kill", (PID, 9), REFUSED),
        ("kill", (PID + 1, 11), REFUSED),
        ("kill", (2**32 - 1, 11), REFUSED),
        ("tgkill", (PID, PID, 6), ALLOWED),
        ("tgkill", (PID + 1, PID, 6), REFUSED),
        ("prlimit64", (0, 7, 0, 1), ALLOWED),
        ("prlimit64", (0, 7, 1, 0), REFUSED),
        ("prlimit64", (0, 7, 1 << 32, 0), REFUSED),
        ("prlimit64", (PID, 7, 0, 1), REFUSED),
        ("fcntl", (0, fcntl.F_GETFL), ALLOWED),
        ("fcntl", (0, fcntl.F_SETOWN), REFUSED),
        ("ioctl", (0, 0x5412), REFUSED),
    ],
)
def test_arguments_decide(name: str, call: str, arguments: tuple[int, ...], wanted: int) -> None:
    machine, program = MACHINES[name], filter_for(PID, name)
    assert decided(program, audit=machine.audit, number=machine.special[call], arguments=arguments) == wanted


@pytest.mark.parametrize("name", MACHINES)
def test_calls_of_another_machine_or_another_table_end_the_process(name: str) -> None:
    machine, program = MACHINES[name], filter_for(PID, name)
    for audit in {0x40000003, 0x40000028, *(one.audit for one in MACHINES.values())} - {machine.audit}:  # 32 bits
        assert decided(program, audit=audit, number=machine.allowed["getpid"]) == KILLED
    assert decided(program, audit=machine.audit, number=0x40000000) == KILLED


@pytest.mark.parametrize(("name", "socket"), [("x86_64", 41), ("aarch64", 198)])
def test_without_network_all_calls_but_those_that_make_sockets_may_be_made(name: str, socket: int) -> None:
    audit, program = MACHINES[name].audit, filter_without_network(name)
    refused = [one for one in range(600) if decided(program, audit=audit, number=one) != ALLOWED]
    assert refused == [socket, 425]  # io_uring's queues make sockets too
    assert decided(program, audit=0x40000003, number=102) == KILLED  # of 32 bits: socketcall


def test_every_machine_allows_the_same_calls_by_their_names() -> None:
    x86, arm = ({**one.allowed, **one.special} for one in MACHINES.values())
    assert arm.keys() <= x86.keys()
    assert x86.keys() - arm.keys() == NEWER.keys()
    assert {newer for newer in NEWER.values() if newer} <= arm.keys()


@pytest.mark.parametrize("name", MACHINES)
def test_numbers_are_those_of_the_kernels_headers(name: str) -> None:
    if not HEADERS[name].exists():
        pytest.skip("the kernel's headers are not installed")
    text = HEADERS[name].read_text()
    found = {call: int(number) for call, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    found |= {"newfstatat": found.get("newfstatat", found.get("fstatat", -1))}  # its older name in the generic table
    machine = MACHINES[name]
    ours = {**machine.allowed, **machine.special}
    assert {call: found.get(call) for call in ours} == ours
