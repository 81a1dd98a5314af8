"""A command that is kept running: started again when it ends, with growing pauses, and with the cause on record."""

import asyncio
import logging
import os
import random
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from rewardpool_api import names
from rewardpool_control.snapshot import Failure
from rewardpool_local.process import Process, importing_safely, tail
from rewardpool_runtime.listeners import ForeignListenerError, HeldPort, check_listens
from rewardpool_worker.diagnosis import LOG_TAIL_BYTES, diagnose

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
# A process that served for this long and then ended is not a failed start: the pauses begin anew.
HEALTHY_SECONDS = 60.0
# A process does not send itself these signals by going wrong.
FROM_OUTSIDE = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM}
)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, and where it listens."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    url: str
    ports: tuple[HeldPort, ...] = ()
    """Those at which it will listen, that of the address first; held until another process serves."""
    originals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Run:
    """State that all processes of one supervisor share."""

    id: str
    pool: str
    """`namespace/name`."""
    logs: Path
    changed: Callable[[], None]


def failures_after(failures: int, *, code: int, served_seconds: float | None, ended_by_us: bool) -> int:
    """Return the number of failed starts in a row, with the one that just ended; never 0. Pure.

    Args:
        code: With which it ended, negative for a signal.
        served_seconds: For which it served; None if it never did.
        ended_by_us: It hung, or lost its weights.
    """
    if served_seconds is not None and served_seconds >= HEALTHY_SECONDS:
        return 1
    if served_seconds is not None and not ended_by_us and -code in FROM_OUTSIDE:
        # Whoever kills workers every few seconds finds them back as soon each time. One that is killed before it serves
        # may have been too large for the machine.
        return max(1, failures)
    return failures + 1


def pause_seconds(failures: int, jitter: float) -> float:
    """Return the seconds to wait before a start after so many failed ones in a row.

    Args:
        failures: at least 1.
        jitter: evenly from 0 to 1; spreads the pause by a quarter to both sides.
    """
    return float(min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (failures - 1)) * (0.75 + jitter / 2))


class SupervisedProcess:
    """One command, and the process it has at the moment."""

    def __init__(self, name: str, *, run: Run, command: Callable[[], Command]) -> None:
        """Remember what to run; `command` is asked before every start, since a port may be taken by then."""
        self.name = name
        self.restarts = 0
        self.failure: Failure | None = None
        self.url = ""
        self._originals: Mapping[str, str] = {}
        self._ports: tuple[HeldPort, ...] = ()
        self._former_ports: set[HeldPort] = set()
        self._sockets: set[int] = set()
        self.stopping = False
        self._run = run
        self._command = command
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._starts = 0
        self._failures = 0
        self._start_at = 0.0
        self._started_at = 0.0
        self._serving_since: float | None = None
        self._killed_for: Failure | None = None

    @property
    def log_file(self) -> Path:
        return self._run.logs / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """None while it has no process."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def running_seconds(self) -> float:
        """Since its last start; 0 while it has no process."""
        return monotonic() - self._started_at if self.running else 0.0

    @property
    def is_due(self) -> bool:
        """True if it is to be started now: it does not run, is not being stopped, and does not pause."""
        return not self.running and not self.stopping and monotonic() >= self._start_at

    def note_serving(self) -> None:
        """Take down that it serves, from which on a failure is forgiven after a while."""
        if self._serving_since is None:
            self._serving_since = monotonic()
            self.failure = None
            # By now each router's list is without the addresses of the processes before.
            self._release(self._former_ports.difference(self._ports))

    async def listens(self) -> bool:
        """Return whether its process listens at all of its ports; check this before anything is sent there.

        Where another process does, it is ended, to be started again like one that died.
        """
        if self._process is None:
            return False
        try:
            # Twice: what is seen before a port is taken back may be another one after it.
            return self._holds_all_ports(self._process.pid) and self._holds_all_ports(self._process.pid)
        except ForeignListenerError as error:
            await self.start_again(Failure(reason="PortInUse", message=str(error)))
            return False

    def _holds_all_ports(self, pid: int) -> bool:
        if not all(check_listens(pid, port.number, known=self._sockets) for port in self._ports):
            return False
        for port in self._ports:
            port.reclaim()
        return True

    def release_ports(self) -> None:
        """Hold none of its ports any longer; it has no process, and is started no more."""
        self._release({*self._ports, *self._former_ports})

    def _release(self, ports: Iterable[HeldPort]) -> None:
        for port in ports:
            port.release()
        self._former_ports.difference_update(ports)

    async def start_if_due(self) -> bool:
        """Start the process unless it runs, is being stopped, or is pausing; returns whether it was started."""
        if not self.is_due:
            return False
        command = self._command()
        self.restarts = self._starts
        self._starts += 1
        self._started_at, self._serving_since = monotonic(), None
        self.url, self._originals = command.url, command.originals
        self._former_ports.update(self._ports)
        self._ports, self._sockets = command.ports, set()
        mark = f"/{self._run.id}/{self.name}/{self._starts}/"
        env = {**_neutral_environment(), **command.env, names.ENV_POOL: self._run.pool}
        self._process = await Process.start(command.argv, env=env, mark=mark, log_file=self.log_file)
        self._watch = asyncio.create_task(self._wait_for_end(self._process))
        log.info("%s: started as process %d", self.name, self._process.pid)
        self._run.changed()
        return True

    async def stop(self, *, grace_seconds: float) -> None:
        """End the process, and start none again."""
        self.stopping = True
        if self._process is not None:
            await self._process.stop(grace_seconds=grace_seconds)
        await self._wait_for_watch()

    async def kill(self) -> None:
        self.stopping = True
        if self._process is not None:
            await self._process.kill()
        await self._wait_for_watch()

    async def start_again(self, failure: Failure) -> None:
        """End the process at once for this cause, to be started again like one that died."""
        if self._process is not None:
            self._killed_for = failure
            await self._process.kill()
            await self._wait_for_watch()

    def bound_log(self) -> None:
        if self._process is not None:
            self._process.bound_log()

    async def _wait_for_watch(self) -> None:
        if self._watch is not None:
            await self._watch

    async def _wait_for_end(self, process: Process) -> None:
        code = await process.ended()
        self._process = None
        if not self.stopping:
            self._note_failure(code)
        self._run.changed()

    def _note_failure(self, code: int) -> None:
        ended_by_us = self._killed_for is not None
        cause, lines = self._cause(code)
        served = None if self._serving_since is None else monotonic() - self._serving_since
        self._failures = failures_after(self._failures, code=code, served_seconds=served, ended_by_us=ended_by_us)
        pause = pause_seconds(self._failures, random.random())  # noqa: S311 - spreads restarts, guards nothing
        self._start_at = monotonic() + pause
        ended = f"{self.name}: {cause.message}; starts again in {pause:.1f} s (restart {self._starts})"
        self.failure = Failure(reason=cause.reason, message="\n".join([ended, *lines]))
        # The engine's last lines once; they hardly differ from one start to the next.
        log.warning("%s", self.failure.message if self._failures == 1 else ended)

    def _cause(self, code: int) -> tuple[Failure, tuple[str, ...]]:
        log = tail(self.log_file, LOG_TAIL_BYTES)
        for copy, original in self._originals.items():
            log = log.replace(copy, original)
        diagnosis = diagnose(exit_code=code, log=log)
        cause, self._killed_for = self._killed_for, None
        return cause or Failure(reason=diagnosis.reason, message=diagnosis.message), tuple(diagnosis.log)


def _neutral_environment() -> dict[str, str]:
    # Variables of ours that the user set for a trainer would be read as settings by workers and routers.
    return importing_safely({name: value for name, value in os.environ.items() if not name.startswith("REWARDPOOL_")})
