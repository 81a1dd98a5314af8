"""What a run leaves behind, written down before it is made, so that a later run can remove it.

The kernel itself ends a killed run's processes, mounts and interfaces (see `cluster.namespaces`). What it does not
remove, control groups and files, is named in `.rewardpool/e2e/<run>/record.json`; whoever starts next sweeps the
records whose owner is dead. Nothing that no record names, and no container of its run
had, is ever touched.
"""

import json
import os
import re
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.folders import STATE
from cluster.network import disconnect
from cluster.processes import ClusterError
from cluster.progress import Say

_CGROUPS = Path("/sys/fs/cgroup")
_RECORD = "record.json"
CONTAINERD_NAMESPACE = "k8s.io"
"""Of containerd for Kubernetes, and the control group in which it puts containers that the kubelet gives no other."""
_CONTAINER_ID = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run: who owns it, and what it makes outside its namespaces.

    A process id alone may be another process's tomorrow, so `owner_started` (clock ticks since boot) goes with it.
    """

    owner_pid: int
    owner_started: str
    interface: str
    cgroup: str

    @classmethod
    def of_this_process(cls, *, interface: str, cgroup: str) -> "Record":
        """A record that this process owns."""
        pid = os.getpid()
        return cls(owner_pid=pid, owner_started=process_started(pid) or "", interface=interface, cgroup=cgroup)

    @property
    def owner_alive(self) -> bool:
        """Whether the very process that wrote the record still runs."""
        return process_started(self.owner_pid) == self.owner_started

    def write(self, directory: Path) -> None:
        """Write it into the run's folder, whole or not at all."""
        unfinished = directory / f"{_RECORD}.new"
        unfinished.write_text(json.dumps(asdict(self)))
        unfinished.replace(directory / _RECORD)


def read_record(directory: Path) -> Record | None:
    """The record of the run in `directory`, None when it has none."""
    try:
        return Record(**json.loads((directory / _RECORD).read_text()))
    except FileNotFoundError:
        return None


def sweep(*, say: Say, state: Path = STATE) -> None:
    """Remove what dead runs left. Call it under the lock under which runs start."""
    for file in sorted(state.glob(f"*/{_RECORD}")):
        record = read_record(file.parent)
        if record is not None and not record.owner_alive:
            say(f"removing what the ended run {file.parent.name} left (its process {record.owner_pid} is gone)")
            remove(file.parent, record)


def remove(directory: Path, record: Record) -> None:
    """Remove the run's interface, control groups and folder; its processes must have ended."""
    disconnect(record.interface)
    remove_cgroups(record.cgroup, *(f"{CONTAINERD_NAMESPACE}/{task}" for task in tasks_of(directory)))
    # The record goes last: a removal that is cut short is taken up again.
    for entry in directory.iterdir():
        if entry.name != _RECORD:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.rmtree(directory)


def tasks_of(directory: Path) -> list[str]:
    """The containers that ran in the run's folder when it ended: whatever ended before, containerd removed."""
    folders = directory.glob(f"*/io.containerd.runtime.v2.task/{CONTAINERD_NAMESPACE}/*")
    return sorted(folder.name for folder in folders if _CONTAINER_ID.fullmatch(folder.name))


def remove_cgroups(*names: str, root: Path = _CGROUPS, deadline_seconds: float = 10.0) -> None:
    """Remove these control groups with all below them, in the unified and in every v1 hierarchy.

    A name is one group below the root, or `k8s.io/` and one below that. The kernel gives a group free a moment after
    its last process ended, hence the deadline; raises `ClusterError` then.
    """
    for name in names:
        own = name.removeprefix(f"{CONTAINERD_NAMESPACE}/")
        if own in ("", ".", "..", CONTAINERD_NAMESPACE) or "/" in own:
            raise ValueError(f"{name!r} does not name one control group")
    deadline = time.monotonic() + deadline_seconds
    for top in [top for name in names for top in (root / name, *sorted(root.glob(f"*/{name}")))]:
        while top.is_dir() and not _removed(top):
            if time.monotonic() > deadline:
                raise ClusterError(f"{top} still has processes after {deadline_seconds:.0f} s")
            time.sleep(0.05)


def _removed(top: Path) -> bool:
    try:
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()
    except OSError:  # "busy": a process is still ending; the caller tries again until its deadline
        return False
    return True


def process_started(pid: int) -> str | None:
    """When the process began, in clock ticks since boot; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may itself hold spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]
