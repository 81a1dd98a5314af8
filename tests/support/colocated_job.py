"""`python -m rewardpool_train`, which writes down when each rank computes.

PYTHONPATH=tests torchrun --nproc-per-node N -m support.colocated_job FOLDER CONFIG.yaml
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from rewardpool_train.actor.learner import ActorLearner, EngineRollouts
from rewardpool_train.job import main


def note_each(kind: type, name: str, file: Path) -> None:
    """Have a line with begin and end, in monotonic seconds, written for each call of a method."""
    work = getattr(kind, name)

    async def noted(self: Any, *arguments: Any) -> None:
        begin = time.monotonic()
        await work(self, *arguments)
        with file.open("a") as log:
            log.write(f"{begin} {time.monotonic()} {name}\n")

    setattr(kind, name, noted)


if __name__ == "__main__":
    file = Path(sys.argv[1]) / f"rank-{os.getpid()}"
    file.touch()
    note_each(EngineRollouts, "roll_out", file)
    note_each(ActorLearner, "train", file)
    note_each(ActorLearner, "publish", file)
    sys.exit(main(sys.argv[2:]))
