"""One process of a pool with everything it spawns: started in a group of its own, and ended without a rest.

Engines spawn processes, and those may leave the group. So every process is marked in its environment, which descendants
inherit, and whatever carries the mark is part of it: `/run id/name/number of the start/`.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from rewardpool_runtime.process_guard import GUARD

log = logging.getLogger(__name__)

ENV_PROCESS = "REWARDPOOL_PROCESS"  # $REWARDPOOL_POOL would not do: a trainer has that too
MAX_LOG_BYTES = 16 * 1024 * 1024
GONE_SECONDS = 5.0  # after SIGKILL; longer means that the kernel holds the process in a system call


class Process:
    """A running process, its group and its log."""

    def __init__(self, process: asyncio.subprocess.Process, *, mark: str, log_file: Path) -> None:
        self._process = process
        self._mark = mark
        self._log_file = log_file

    @classmethod
    async def start(cls, argv: Sequence[str], *, env: Mapping[str, str], mark: str, log_file: Path) -> Self:
        """Start a program that dies with this process.

        Args:
            env: its whole environment, without the mark.
            mark: what to find it and its descendants by.
            log_file: gets standard output and error; the file of the start before is kept as `NAME.1`.

        Raises:
            OSError: the log cannot be opened.
        """
        _put_away(log_file)
        # setproctitle, which vLLM and the router use, would write over the environment that the mark is read from.
        environment = {**env, ENV_PROCESS: mark, "SPT_NOENV": "1", "PYTHONUNBUFFERED": "1"}
        # Appending, so that what follows a truncation goes to the file's new end.
        with log_file.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", GUARD, str(os.getpid()), *argv),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(process, mark=mark, log_file=log_file)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its group."""
        return self._process.pid

    async def ended(self) -> int:
        """Wait until it ends and return its exit code, negative for a signal. What it spawned is ended then, too."""
        code = await self._process.wait()
        await self._sweep()
        return code

    async def stop(self, *, grace_seconds: float) -> None:
        """Ask it to end, and end it and all it spawned when it has not after the grace."""
        if self._process.returncode is None:
            # Only the leader: engines finish what is in flight with the help of the processes they spawned.
            self._process.terminate()
        try:
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        except TimeoutError:
            log.info("%s did not end within %g s and is killed", self._mark.strip("/"), grace_seconds)
        await self._sweep()

    async def kill(self) -> None:
        await self._sweep()

    async def _sweep(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            log.debug("nothing is left of the process group %d", self.pid)
        await self._process.wait()
        await asyncio.to_thread(lambda: kill_all(marked(self._mark)))

    def bound_log(self) -> None:
        """Keep the log below `MAX_LOG_BYTES`. A longer one is copied away, since the process has it open."""
        try:
            if self._log_file.stat().st_size > MAX_LOG_BYTES:
                shutil.copyfile(self._log_file, _older(self._log_file))
                os.truncate(self._log_file, 0)
        except OSError as error:
            # A person removed it, or the disk is full: a log is never worth what writes it.
            log.debug("%s is not kept short: %s", self._log_file, error)


def importing_safely(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which Python imports nothing from the folder that it is run in."""
    # A file there may be called like a module that a supervisor or a worker needs.
    folders = filter(os.path.isabs, environ.get("PYTHONPATH", "").split(os.pathsep))
    return {**environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONSAFEPATH": "1"}


def marked(mark: str) -> list[psutil.Process]:
    """Running processes whose mark begins with this one."""
    found = []
    for process in psutil.process_iter():
        try:
            belongs = process.environ().get(ENV_PROCESS, "").startswith(mark)
        except psutil.Error:
            # Another user's, or it ended just now.
            continue
        if belongs and process.pid != os.getpid():
            found.append(process)
    return found


def kill_all(processes: Sequence[psutil.Process]) -> None:
    """Kill the processes and wait until they are gone. psutil makes sure that none is another one of the same id."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            log.debug("process %d ended by itself", process.pid)
    _, alive = psutil.wait_procs(processes, timeout=GONE_SECONDS)
    if alive:
        log.warning("processes %s do not go away after SIGKILL", [process.pid for process in alive])


def tail(path: Path, limit_bytes: int) -> str:
    """The last bytes of a log as text; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit_bytes))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _put_away(log_file: Path) -> None:
    if log_file.exists():
        log_file.replace(_older(log_file))


def _older(log_file: Path) -> Path:
    return log_file.with_name(f"{log_file.name}.1")
