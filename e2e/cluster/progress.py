"""How the cluster tools tell what they are doing: one line per step, with the seconds since the start."""

import sys
import time
from collections.abc import Callable

Say = Callable[[str], None]


def timed_lines() -> Say:
    """A `Say` that prints each line to standard error behind the seconds elapsed since this call."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {line}", file=sys.stderr, flush=True)

    return say
