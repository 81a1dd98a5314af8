"""Starting, watching and ending the programs of a cluster.

Every program is a `Daemon`: its output goes to a log, it is ended by its own process id, and the kernel ends it when
the process that started it dies, even by kill -9. Every wait has a deadline, and the error that a missed one raises
shows the end of the logs.
"""

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class ClusterError(RuntimeError):
    """A part of the cluster did not start or did not answer; the message has the end of its log."""


class Daemon:
    """A running program, in a session of its own, so that Ctrl-C reaches us and not it.

    The kernel's parent-death signal is tied to the starting *thread*: start daemons from a thread that outlives them.
    """

    def __init__(
        self, name: str, argv: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *map(str, argv)],
                env=os.environ | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id on the host."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll()

    def tail(self, lines: int = 15) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def terminate(self) -> None:
        """Ask the program to end in order; `join` waits for the end."""
        self._process.terminate()

    def kill(self) -> None:
        """End the program at once, if it still runs; `join` waits for the end."""
        self._process.kill()

    def join(self) -> None:
        """Wait until the program has ended. Raises `subprocess.TimeoutExpired` if it does not within ten seconds."""
        self._process.wait(timeout=10)


def kill(daemons: Sequence[Daemon]) -> None:
    """End the daemons without asking: nothing that they would still write is ever read."""
    for daemon in daemons:
        daemon.kill()
    for daemon in daemons:
        daemon.join()


def wait_until(
    check: Callable[[], bool], *, what: str, deadline_seconds: float, daemons: Sequence[Daemon] = ()
) -> None:
    """Call `check` until it returns True.

    Raises `ClusterError` with the logs' ends when a daemon ends first, or when `deadline_seconds` pass.
    """
    deadline = time.monotonic() + deadline_seconds
    while not check():
        ended = [daemon for daemon in daemons if daemon.status is not None]
        if ended:
            raise ClusterError(f"{ended[0].name} ended with status {ended[0].status}:\n{ended[0].tail()}")
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- {daemon.name} ({daemon.log})\n{daemon.tail()}" for daemon in daemons)
            raise ClusterError(f"{what}: not after {deadline_seconds:.0f} s\n{logs}")
        time.sleep(0.05)


def output_of(
    *argv: str | Path,
    data: str | None = None,
    deadline_seconds: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a short command and return its standard output.

    Raises `ClusterError` with its standard error when it fails or takes longer than `deadline_seconds`.
    """
    try:
        done = subprocess.run(
            [str(argument) for argument in argv],
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            env=os.environ | (environment or {}),
            capture_output=True,
            text=True,
            timeout=deadline_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{argv[0]} {argv[1]} took longer than {deadline_seconds:.0f} s") from None
    if done.returncode != 0:
        command = " ".join(str(argument) for argument in argv)
        raise ClusterError(f"{command} failed with status {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def children_of(pid: int) -> list[int]:
    """The processes that a process of one thread started and that still run, by their ids on the host."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def free_port(address: str = "127.0.0.1") -> int:
    """A port nobody listens on, below the range from which the kernel gives ports to outgoing connections.

    Between this call and the server's own bind, such a port is taken by chance far less often than one from `bind(0)`.
    """
    for port in random.sample(range(20000, 32000), 50):
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise ClusterError(f"no free port on {address} in 50 tries between 20000 and 32000")
