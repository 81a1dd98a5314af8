"""Limits of a call of a function, and the sentence about one that used more. No clock and no process here."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rewardpool_runtime.functions.outcome import Failed

ALL: Final = "*"
"""As the name of a variable to give to a function: each one but RewardPool's own."""
ASYNC_CONCURRENCY: Final = 32
_FIELDS: Final = {
    "cpu_seconds": "spec.sandbox.cpuSeconds",
    "idle_seconds": "spec.sandbox.idleSeconds",
    "memory_mib": "spec.sandbox.memory",
}
MAX_PROCESSES: Final = 64
MAX_FILE_BYTES: Final = 1 << 30
MAX_OUTPUT_BYTES: Final = 64 * 1024
# Shorter calls are never looked at.
LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """Settings of calls, and the limits of each.

    Attributes:
        cpu_seconds: Processor time, with that of the processes that it starts.
        idle_seconds: Time in which it could have run and waited for something else.
        memory_mib: Beyond what the imported function has; 0: as much as it likes.
        concurrency: Calls at once; None: as many as there are processors, and `ASYNC_CONCURRENCY` of an async function.
        calls_per_process: After so many calls a process is replaced; 0: never. None: after one, but never where each
            process has to import the function by itself, or the function uses the sandbox.
        of_pool: Whether they are a pool's, for messages.
    """

    cpu_seconds: float = 30.0
    idle_seconds: float = 30.0
    memory_mib: int = 4096
    concurrency: int | None = None
    calls_per_process: int | None = None
    of_pool: bool = False

    @property
    def wall_seconds(self) -> float:
        return self.cpu_seconds + self.idle_seconds

    def setting(self, name: str) -> str:
        """Return a setting's name as its user writes it."""
        return _FIELDS[name] if self.of_pool else name

    def places(self, *, is_async: bool) -> int:
        return self.concurrency or (ASYNC_CONCURRENCY if is_async else cpus())

    def overdue(self) -> Failed:
        """Return what becomes of a call whose processor time cannot be told from that of others."""
        settings = f"{self.setting('cpu_seconds')} plus {self.setting('idle_seconds')}"
        return Failed(f"TimeoutError: the function took longer than {self.wall_seconds:g} s, its limit by {settings}")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Use of one call so far; seconds."""

    wall: float
    cpu: float
    idle: float
    processes: int


def exceeded(usage: Usage, limits: CallLimits) -> Failed | None:
    """Return what becomes of a call that used more than it may; None of one that did not. Pure."""
    if usage.processes > MAX_PROCESSES:
        return Failed(f"the function had {usage.processes} processes at once; it may have {MAX_PROCESSES}")
    # The policy's fault; sleep is the function's, and a call that got neither is the machine's.
    if usage.cpu > limits.cpu_seconds:
        spent = f"used {limits.cpu_seconds:g} s of processor time"
        return Failed(f"TimeoutError: the function {spent}, its limit by {limits.setting('cpu_seconds')}", "policy")
    if usage.idle > limits.idle_seconds:
        slept = f"waited for {limits.idle_seconds:g} s in which it could have run"
        return Failed(f"TimeoutError: the function {slept}, its limit by {limits.setting('idle_seconds')}")
    if usage.wall > limits.wall_seconds:
        got = f"got {usage.cpu:.1f} s of processor time in {usage.wall:.0f} s and waited for a processor in the others"
        return Failed(f"starved: the function {got}: the machine has too much to do", "infra")
    return None


def cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many processors this process may use at once, by its affinity and its control group's quota."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, math.ceil(min(allowed, _quota(cgroup))))


def _quota(cgroup: Path) -> float:
    readers: tuple[tuple[str, ...], ...] = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
    for files in readers:
        try:
            quota, period = " ".join((cgroup / file).read_text() for file in files).split()
            if quota not in ("max", "-1"):
                return float(quota) / float(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return math.inf
