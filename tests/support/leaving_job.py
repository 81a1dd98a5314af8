"""A job that ends right after its last collective, on a machine where gloo's threads are late: all share a processor.

PYTHONPATH=tests torchrun --nproc-per-node N -m support.leaving_job
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from rewardpool_train.actor.ranks import join_job

kept: list[dist.ProcessGroup] = []
"""The group, as modules sharded by FSDP keep it beyond the job."""


def let_all_else_go_first() -> None:
    """Have gloo's threads run on one processor, and there only when nothing else of this process wants to."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), os.sched_getaffinity(0))
        if task.joinpath("comm").read_text().startswith("pt_gloo"):
            os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Join, reduce a few tensors, and leave."""
    with join_job(deadline_seconds=60):
        kept.append(dist.group.WORLD)
        let_all_else_go_first()
        for _ in range(5):
            dist.all_reduce(torch.ones(1000))
        sys.setswitchinterval(1000)  # this thread gives the interpreter's lock away only where it waits for something


if __name__ == "__main__":
    main()
