"""A user's module whose import fails every second time, counted in a file."""

import os
from pathlib import Path

count = Path(os.environ["COUNT_FILE"])
count.write_text(count.read_text() + "x")
if len(count.read_text()) % 2 == 0:
    raise RuntimeError("no licence this time")


def compute_score(**_):
    return 1.0
