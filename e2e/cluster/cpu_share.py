"""The share of the processors that all pods of this machine have together.

Without control groups of its own, the kubelet leaves containers to containerd, which puts them all in one group; that
group weighs as much as one session outside does (the kernel groups processes by their sessions, and a test suite has
a dozen), and beside a test suite its pods starve.
"""

import os
from pathlib import Path

from cluster.leftovers import CONTAINERD_NAMESPACE

_CGROUPS = Path("/sys/fs/cgroup")
SHARES_OF_A_SESSION = 1024
"""In the v1 hierarchy; `cpu.weight` of the unified one counts a session as 100."""
WEIGHT_OF_A_SESSION = 100
SESSIONS = 2
"""For each processor: pods weigh as much as so many, so that neither they nor the tests beside them starve."""


def share_processors(*, root: Path = _CGROUPS, processors: int | None = None) -> None:
    """Let all pods together weigh as much as `SESSIONS` for each processor; a kubelet gives its group half of that.

    Args:
        root: Where the hierarchies are mounted; one without control of processors is left as it is.
        processors: How many this machine has.
    """
    processors = processors or os.cpu_count() or 1
    for hierarchy, setting, value in (
        (root / "cpu", "cpu.shares", processors * SESSIONS * SHARES_OF_A_SESSION),
        (root, "cpu.weight", processors * SESSIONS * WEIGHT_OF_A_SESSION),
    ):
        if (hierarchy / "cgroup.procs").exists():
            group = hierarchy / CONTAINERD_NAMESPACE
            group.mkdir(exist_ok=True)
            if (group / setting).exists():
                (group / setting).write_text(str(value))
