"""What one rank and two are asked for by several files of tests, in one job: its start takes longer than all it does.

PYTHONPATH=tests torchrun --nproc-per-node N -m support.rank_jobs FOLDER
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from support import checkpoint_job, schedule_job, update_job

from rewardpool_train.actor.ranks import join_job

CHECKPOINTS, RESULTS = "checkpoints", "results.pt"


def main() -> None:
    """Do all of it, and save what came of each."""
    folder = Path(sys.argv[1])
    with join_job(deadline_seconds=60) as ranks, ThreadPoolExecutor(1) as thread:
        results = {
            "updates": update_job.updates(ranks),
            "schedules": schedule_job.by_schedule(ranks, thread),
            "begun": checkpoint_job.begin(ranks, folder / CHECKPOINTS),
        }
        if ranks.first:
            torch.save(results, folder / RESULTS)


if __name__ == "__main__":
    main()
