"""A process that scores a file, and stops at a row for good to be killed: `python scored_file.py FILE OUT [ROWS]`."""

import itertools
import math
import sys
import threading
from pathlib import Path
from typing import Any

from rewardpool import Reward

if __name__ == "__main__":
    rows = float(sys.argv[3]) if len(sys.argv) > 3 else math.inf
    calls = itertools.count()

    def length(solution_str: str, **_: Any) -> float:
        if next(calls) >= rows:
            threading.Event().wait()
        return float(len(solution_str))

    with Reward(length, run_in="threads", calls_per_process=0) as reward:
        reward.score_file(Path(sys.argv[1]), Path(sys.argv[2]), window=32)
