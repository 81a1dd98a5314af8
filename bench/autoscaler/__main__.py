"""Runs the simulator's half, then the node's, and writes both to one file.

python -m autoscaler --only real --repeats 1 --no-down
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from autoscaler import real
from cluster import binaries
from cluster.folders import REPOSITORY
from cluster.processes import ClusterError
from cluster.progress import timed_lines

RESULT: Final = REPOSITORY / ".rewardpool" / "bench" / "autoscaler.json"
NOT_RUN: Final[dict[str, Any]] = {
    "step_response_seconds": None,
    "real_step_response_seconds": None,
    "real_hpa_step_response_seconds": None,
    "traces": None,
}


def show(result: dict[str, Any]) -> None:
    """Print the tables."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(steps_table(result))


def steps_table(result: dict[str, Any]) -> Table:
    """The step on the node."""
    columns = ("step", "autoscaler", "asked for 8 after", "8 served after", "most asked for", "1 again after the load")
    table = Table(*columns, title="Eight times the load, on a node", title_justify="left")
    for number, step in enumerate(result.get("real_steps", []), start=1):
        for name, answer in step.items():
            times = (answer["wanted_seconds"], answer["ready_seconds"])
            shown = ["-" if seconds is None else f"{seconds:.1f} s" for seconds in (*times, answer["down_seconds"])]
            table.add_row(str(number), name, *shown[:2], str(answer["most_wanted"]), shown[2])
    return table


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="autoscaler", description="How soon the right size is asked for: ours beside others.", epilog=__doc__
    )
    parser.add_argument("--only", choices=["simulated", "real"], help="one half; the other's figures become null")
    parser.add_argument("--repeats", type=int, default=3, help="steps on the node (default 3)")
    parser.add_argument("--no-down", action="store_true", help="leave out the wait for the HPA's 300 s at the end")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the node is removed, as it is at Ctrl-C
    say = timed_lines()
    result = dict(NOT_RUN)
    try:
        if given.only != "simulated":
            result |= real.measure(repeats=given.repeats, with_down=not given.no_down, say=say)
    except (binaries.BuildError, ClusterError, TimeoutError) as error:
        sys.exit(f"error: {error}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
