"""The share of the processors that all pods of this machine have together.

Without control groups of its own, the kubelet leaves containers to containerd, which puts them all in one group; that
group weighs as much as one process outside does, and beside a test suite its pods stand still.
"""

import os
from pathlib import Path

from cluster.leftovers import CONTAINERD_NAMESPACE

_CGROUPS = Path("/sys/fs/cgroup")
SHARES_OF_A_PROCESS = 1024
"""In the v1 hierarchy; `cpu.weight` of the unified one counts a process as 100."""
WEIGHT_OF_A_PROCESS = 100


def share_processors(*, root: Path = _CGROUPS, processors: int | None = None) -> None:
    """Let all pods together weigh as much as a process for each processor, as the groups of a common kubelet do.

    Args:
        root: Where the hierarchies are mounted; one without control of processors is left as it is.
        processors: How many this machine has.
    """
    processors = processors or os.cpu_count() or 1
    for hierarchy, setting, value in (
        (root / "cpu", "cpu.shares", processors * SHARES_OF_A_PROCESS),
        (root, "cpu.weight", processors * WEIGHT_OF_A_PROCESS),
    ):
        if (hierarchy / "cgroup.procs").exists():
            group = hierarchy / CONTAINERD_NAMESPACE
            group.mkdir(exist_ok=True)
            if (group / setting).exists():
                (group / setting).write_text(str(value))
