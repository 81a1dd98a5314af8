"""What the programs of this folder exit with, and say, when a story fails or is stopped."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cluster import binaries
from cluster.contract import NotPossibleError
from cluster.processes import ClusterError
from scene import StoryError

FAILURES = (
    StoryError,
    ClusterError,
    NotPossibleError,
    binaries.BuildError,
    TimeoutError,
    subprocess.SubprocessError,
)
"""What a story ends with when something does not come true; anything else is a defect of ours, with its traceback."""


def exit_status(tell: Callable[[], int], *, evidence: Path | None = None) -> int:
    """Tell a story and return its exit status; 1 where it fails, 130 at Ctrl-C.

    Args:
        tell: The whole of it; returns its status.
        evidence: Where it writes what it sees when it fails.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs, as it does at Ctrl-C
    try:
        return tell()
    except FAILURES as error:
        print(f"error: {error}" + (f"; see {evidence}" if evidence else ""), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything is cleaned up", file=sys.stderr)
        return 130
