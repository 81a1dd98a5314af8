"""Use and state of a process of this machine, as Linux has it in /proc."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

ASLEEP: Final = frozenset("SDTtI")
"""Letters of states in which a thread could run and waits instead."""
ENDED: Final = frozenset(("Z", "X", ""))
"""States in which a process runs no more; no letter where there is no such process."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """A process, or one thread of it.

    Attributes:
        state: The letter of its main thread's state; none where there is no such process.
        flags: Of the kernel's, linux/sched.h.
        cpu_seconds: Of its threads, and of those of its children that it waited for.
    """

    state: str
    flags: int
    cpu_seconds: float


GONE: Final = Stat("", 0, 0.0)


def stat(pid: int, thread: int | None = None) -> Stat:
    """Return what /proc has of a process, or of one of its threads; `GONE` where there is none."""
    path = f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat"
    try:
        with open(path, "rb", buffering=0) as file:
            return parsed(file.read().decode(errors="replace"))
    except OSError:
        return GONE


def parsed(text: str) -> Stat:
    """Return what the text of a file `stat` in /proc says; `GONE` where it is empty."""
    fields = text.rpartition(")")[2].split()
    return Stat(fields[0], int(fields[6]), sum(map(int, fields[11:15])) / _TICKS) if fields else GONE


def cpu_clock(pid: int) -> float:
    """Return the processor seconds of a process's threads, to the nanosecond; 0 where it has ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED, as clock_getcpuclockid makes it
    except OSError:
        return 0.0


def children(pid: int) -> list[int]:
    """Return the ids of a process's children; none where the kernel lists none (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    for thread in _threads(pid):
        try:
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
        except OSError:
            continue
    return found


def family(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants, the process first."""
    found = [pid]
    for one in found:  # which grows
        found += children(one)
    return found


class Used(NamedTuple):
    """Use of a process and its descendants, together."""

    cpu_seconds: float
    processes: int
    is_asleep: bool


def used(pid: int) -> Used:
    """Return what a process and its descendants have used; of descendants that ended, as far as one waited for them."""
    members = family(pid)
    stats = [stat(member) for member in members]
    alive = [member for member, one in zip(members, stats, strict=True) if one.state not in ENDED]
    asleep = all(one.state in ASLEEP or one.state in ENDED for one in stats) and _all_threads_sleep(alive)
    return Used(sum(one.cpu_seconds for one in stats), len(alive), asleep)


def _all_threads_sleep(pids: Iterable[int]) -> bool:
    return all(stat(pid, thread).state != "R" for pid in pids for thread in _threads(pid))


def _threads(pid: int) -> list[int]:
    try:
        return list(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []
