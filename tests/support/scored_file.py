"""A process that scores a file by a slow function, to be killed: `python scored_file.py FILE OUT`."""

import sys
import time
from pathlib import Path
from typing import Any

from rewardpool import Reward


def slow_length(solution_str: str, **_: Any) -> float:
    time.sleep(0.002)
    return float(len(solution_str))


if __name__ == "__main__":
    with Reward(slow_length, run_in="threads", calls_per_process=0) as reward:
        reward.score_file(Path(sys.argv[1]), Path(sys.argv[2]), window=32)
