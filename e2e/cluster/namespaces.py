"""A machine inside the machine: process, mount and network namespaces that live and die with their first process.

Everything a node starts runs inside. Ending the first process makes the kernel end all the others, and with the last
of them go its mounts, its interfaces and its firewall rules. That holds for kill -9 of the owner too: the first
process is tied to it by the parent-death signal. So there is no clean-up code that a crash could skip.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cluster.processes import ClusterError, Daemon, children_of, output_of, wait_until

_KUBELET_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Settings of the whole kernel that the kubelet would write. It finds these private copies and is content."""

INSIDE = Path("/run/node")
"""Where the machine's folder appears inside; short, because a socket's path may have 107 characters at most."""


class Machine:
    """Namespaces held open by `pause`; `directory` holds its files on the host and appears inside at /run/node.

    Inside, /run is empty, and /var/lib and /var/log are copy-on-write views: programs write to their usual places, and
    the host does not see it. The rest of the file system is the host's, so hostPath volumes find what is there.
    """

    def __init__(self, directory: Path, *, pause: Path) -> None:
        self.directory = directory
        # slave: mounts made on the host later appear inside, those made inside never appear on the host
        flags = ["--fork", "--pid", "--mount", "--net", "--mount-proc", "--propagation=slave", "--kill-child=SIGKILL"]
        self._holder = Daemon("namespaces", ["unshare", *flags, "--", pause], log=directory / "namespaces.log")
        self._daemons: list[Daemon] = []
        self._commands: dict[str, tuple[str | Path, ...]] = {}
        self._first_process: int | None = None
        try:
            self._first_process = self._wait_for_first_process()
            self._mount()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The first process, by its id on the host."""
        if self._first_process is None:
            raise ClusterError("the namespaces are not there yet")
        return self._first_process

    @property
    def daemons(self) -> Sequence[Daemon]:
        """The programs running inside, and the process that holds the namespaces."""
        return (self._holder, *self._daemons)

    def run(self, *argv: str | Path, deadline_seconds: float = 60.0) -> str:
        """Run a command inside and return its output; raises `ClusterError` as `output_of` does."""
        return output_of(*self._enter(), *argv, deadline_seconds=deadline_seconds)

    def feed(self, file: Path, *argv: str | Path, deadline_seconds: float) -> None:
        """Run a command inside with `file` as its standard input."""
        with file.open("rb") as data:
            done = subprocess.run(
                [*map(str, (*self._enter(), *argv))],
                stdin=data,
                capture_output=True,
                timeout=deadline_seconds,
                check=False,
            )
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(map(str, argv))} < {file}: {done.stderr.decode(errors='replace').strip()}")

    def start(self, name: str, *argv: str | Path) -> Daemon:
        """Start a program inside; it ends with the machine."""
        daemon = Daemon(name, [*self._enter(), *argv], log=self.directory / f"{name}.log")
        self._daemons.append(daemon)
        self._commands[name] = argv
        return daemon

    def restart(self, name: str) -> Daemon:
        """End a program at once and start it again as it was started; what it started itself runs on."""
        (ended,) = (daemon for daemon in self._daemons if daemon.name == name)
        self._daemons.remove(ended)
        # nsenter itself stays outside of the namespace and waits for the program, its child.
        for child in children_of(ended.pid):
            os.kill(child, signal.SIGKILL)
        ended.join()
        return self.start(name, *self._commands[name])

    def close(self) -> None:
        """End everything inside, at once."""
        # With the first process the kernel kills all others; unshare, its parent, lives until it has collected it.
        if self._first_process is not None and self._holder.status is None:
            os.kill(self._first_process, signal.SIGKILL)
        else:
            self._holder.kill()
        for daemon in self.daemons:
            daemon.join()

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--pid", "--mount", "--net", "--"]

    def _wait_for_first_process(self) -> int:
        found: list[int] = []

        def ready() -> bool:
            # Until it has become pause, its /proc is still the host's.
            children = children_of(self._holder.pid)
            found.extend(pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "pause\n")
            return bool(found)

        wait_until(ready, what="the namespaces are there", deadline_seconds=10, daemons=[self._holder])
        return found[0]

    def _mount(self) -> None:
        for name, value in _KUBELET_SYSCTLS.items():
            private = self.directory / "sysctl" / name
            private.parent.mkdir(parents=True, exist_ok=True)
            private.write_text(value)
        # The kubelet wants mounts that spread to its pods; to the host they still do not.
        self.run("mount", "--make-rshared", "/")
        self.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
        self.run("mkdir", INSIDE)
        self.run("mount", "--bind", self.directory, INSIDE)
        for folder in (Path("/var/lib"), Path("/var/log")):
            for role in ("upper", "work"):
                (self.directory / role / folder.name).mkdir(parents=True)
            upper, work = (INSIDE / role / folder.name for role in ("upper", "work"))
            layers = f"lowerdir={folder},upperdir={upper},workdir={work}"
            self.run("mount", "-t", "overlay", "-o", layers, "overlay", folder)
        for name in _KUBELET_SYSCTLS:
            self.run("mount", "--bind", INSIDE / "sysctl" / name, f"/proc/sys/{name}")
