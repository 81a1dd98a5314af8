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

from autoscaler import real, simulated
from autoscaler.aims import aims
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
    # A file or a pipe has no width, and rich would take 80 columns for it.
    console = Console(width=None if sys.stdout.isatty() else 140)
    for table in (paper_table(result), node_table(result), traces_table(result), aims_table(result)):
        if table.row_count:
            console.print(table)


def paper_table(result: dict[str, Any]) -> Table:
    """The step, simulated."""
    columns = ("autoscaler", "asked for 8 after", "least", "most", "most asked for")
    table = Table(*columns, title="Eight times the load, simulated", title_justify="left")
    for name, step in result.get("steps", {}).items():
        times = (in_seconds(step[f"{which}_seconds"]) for which in ("median", "least", "most"))
        table.add_row(name, *times, str(step["most_wanted"]))
    return table


def node_table(result: dict[str, Any]) -> Table:
    """The step on the node."""
    columns = ("step", "autoscaler", "asked for 8 after", "8 served after", "most asked for", "1 again after the load")
    table = Table(*columns, title="Eight times the load, on a node", title_justify="left")
    for number, step in enumerate(result.get("real_steps", []), start=1):
        for name, answer in step.items():
            wanted, ready, down = (in_seconds(answer[f"{which}_seconds"]) for which in ("wanted", "ready", "down"))
            table.add_row(str(number), name, wanted, ready, str(answer["most_wanted"]), down)
    return table


def traces_table(result: dict[str, Any]) -> Table:
    """The traces."""
    columns = ("trace", "policy", "stall", "GPU-seconds", "changes")
    table = Table(*columns, title="Training, simulated", title_justify="left")
    for trace, policies in (result["traces"] or {}).items():
        for name, figures in policies.items():
            cells = (f"{figures['stall_seconds']:.0f} s", f"{figures['gpu_seconds']:.0f}", str(figures["changes"]))
            table.add_row(trace, name, *cells)
        table.add_section()
    return table


def aims_table(result: dict[str, Any]) -> Table:
    """What the figures shall be."""
    table = Table("figure", "measured", "aim", "met", title="Aims", title_justify="left")
    for aim in aims(result):
        table.add_row(
            aim.what, aim.measured, aim.aim, "yes" if aim.met else "no", style=None if aim.met else "bold red"
        )
    return table


def in_seconds(seconds: float | None) -> str:
    """Seconds for people."""
    return "-" if seconds is None else f"{seconds:.1f} s"


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="autoscaler", description="How soon the right size is asked for: ours beside others.", epilog=__doc__
    )
    parser.add_argument(
        "--only", choices=["simulated", "real"], help="one half; of the other the file keeps what it has"
    )
    parser.add_argument("--repeats", type=int, default=3, help="steps on the node (default 3)")
    parser.add_argument("--no-down", action="store_true", help="leave out the wait for the HPA's 300 s at the end")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the node is removed, as it is at Ctrl-C
    say = timed_lines()
    result = NOT_RUN | (json.loads(given.out.read_text()) if given.only and given.out.exists() else {})
    try:
        if given.only != "real":
            result |= simulated.measure(say=say)
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
